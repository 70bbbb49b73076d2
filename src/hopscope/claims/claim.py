"""A claim: what a source says, what is demanded of the numbers, and how these are computed from the evidence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from hopscope.claims.completions import Kind
from hopscope.claims.criteria import Criterion
from hopscope.claims.verdicts import Judgement, Need
from hopscope.errors import UserError

ValueFunction = Callable[[Any], Any]
"""From an evidence table to a series over members, one number for each member, `Samples`, or a mapping part → those."""

Rule = Literal["always", "mean", "effect"]
Must = Criterion | Mapping[str, Criterion]

_NOT_GIVEN = cast(Must, None)
"""`must` has to be given, but follows fields that need not be."""


@dataclass(frozen=True)
class Claim:
    """A statement of a source, and the rule by which numbers decide it; `judge` applies it to a run.

    Attributes:
        id: short name, unique in a study.
        statement: what the source says, in one sentence.
        source: where it says so.
        protocol: what is run and measured to test it.
        value: function of the evidence table that returns a series over members, a sequence with one number for each
            member of the run, `Samples`, or a mapping from the names of the parts to any of these.
        must: what the numbers must satisfy: a criterion, or one for each part.
        need: whether all parts must hold, or any of them is enough; `agreement` where they measure one thing, and
            decide only if all give the same verdict.
        rule: `always` (every value), `mean` (95 % bootstrap interval of the mean), `effect` (the same of a difference
            or of a correlation of pairs, which must also exclude 0); or one for each part.
        source_n: how many models the source had; rule `always` needs as many seeds (for unit `run`, as many runs).
        seeds_needed: how many independent seeds a verdict needs, whatever the source had.
        at_scale: function of the evidence table that says in words what the run lacks of the protocol's scale, such as
            `1 of 20 epochs`; an empty string if nothing.  A run that lacks something decides nothing.
        readings: ways to read what the source leaves open: name → value function, or a function of the evidence that
            returns that; the first is the default, and `value` is not needed.
        readings_agree: whether the readings are ways to measure one thing, which must all give the same verdict.
        untried: function of the evidence table that names readings of the source by which no model of the run was
            trained; an empty string if there are none.  As long as there are some, nothing is refuted.
        kind: what is said, where the completion of a run's recipe matters (docs/protocols.md): `existence` of a
            source's own trained models, which is refuted only if every registered completion refutes it; `general`,
            which is reproduced only if it holds under all of them.  Readings that are completions count so too.
        controls: name → value function of what should show nothing; measured by the same rule and shown.
        must_not: what the controls must not show; a control that does keeps the claim from being reproduced.
        structural: whether the claim follows from the architecture or a theorem, or the words for that, such as
            `true by the theorem`; its n counts cases.
        trust: what a reader must trust to believe the verdict.
        summary: for a claim of many parts: function of their judgements, by name, that says in a sentence what was
            seen; it stands where the words of all parts would.

    Raises:
        UserError: a field is not what it should be.
    """

    id: str
    statement: str
    source: str
    protocol: str
    value: ValueFunction | None = None
    must: Must = _NOT_GIVEN
    need: Need = "all"
    rule: Rule | Mapping[str, Rule] = "always"
    source_n: int = 1
    seeds_needed: int = 10
    at_scale: Callable[[Any], str] | None = None
    readings: Mapping[str, ValueFunction] | Callable[[Any], Mapping[str, ValueFunction]] | None = None
    readings_agree: bool = False
    untried: Callable[[Any], str] | None = None
    kind: Kind | None = None
    controls: Mapping[str, ValueFunction] | None = None
    must_not: Must | None = None
    structural: bool | str = False
    trust: str | list[str] = ""
    summary: Callable[[Mapping[str, Judgement]], str] | None = None

    def __post_init__(self) -> None:
        for name in ("id", "statement", "source", "protocol"):
            text = getattr(self, name)
            if not isinstance(text, str) or (name == "id" and not text):
                raise UserError(f"claim {self.id!r}: {name}: expected words, found {text!r}")
        self._check_functions()
        self._check_criteria()
        for rule in self.rules.values():
            self._check_choice("rule", rule, get_args(Rule))
        self._check_choice("need", self.need, get_args(Need))
        if self.kind is not None:
            self._check_choice("kind", self.kind, get_args(Kind))
        for name, least in (("source_n", 1), ("seeds_needed", 2)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                self._refuse(name, f"a whole number of {least} or more", number)

    @property
    def criteria(self) -> dict[str, Criterion]:
        """Part → criterion; a claim without parts has one, whose name is empty."""
        return {"": self.must} if isinstance(self.must, Criterion) else dict(self.must)

    @property
    def rules(self) -> dict[str, Rule]:
        """The rule of each part, by the part's name."""
        if isinstance(self.rule, str):
            return dict.fromkeys(self.criteria, self.rule)
        return dict(self.rule)

    def _check_functions(self) -> None:
        if self.value is None and self.readings is None:
            self._refuse("value", "a function of the evidence (or readings)", None)
        for name in ("value", "at_scale", "untried", "summary"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                of = "the parts' judgements" if name == "summary" else "the evidence"
                self._refuse(name, f"a function of {of}", function)
        for name in ("readings", "controls"):
            functions = getattr(self, name)
            if functions is None or (name == "readings" and callable(functions)):
                continue
            if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
                self._refuse(name, "a mapping from names to functions of the evidence", functions)
        if self.readings is not None and not callable(self.readings) and not self.readings:
            self._refuse("readings", "at least one", {})

    def _check_criteria(self) -> None:
        for name in ("must", "must_not"):
            must = getattr(self, name)
            if isinstance(must, Criterion) or (name == "must_not" and must is None):
                continue
            if (
                not isinstance(must, Mapping)
                or not must
                or not all(isinstance(each, Criterion) for each in must.values())
            ):
                self._refuse(name, "a criterion such as hopscope.at_least(0.99), or one for each part", must)
        parts = [*self.criteria]
        if self.summary is not None and isinstance(self.must, Criterion):
            self._refuse("summary", "several parts in `must`, whose words it stands for", self.must)
        if not isinstance(self.rule, str) and (
            not isinstance(self.rule, Mapping) or {*self.rule} != {*parts}
        ):
            self._refuse("rule", f"a rule, or one for each part ({', '.join(parts)})", self.rule)

    def _check_choice(self, name: str, found: object, choices: tuple[str, ...]) -> None:
        if found not in choices:
            self._refuse(name, f"one of {', '.join(choices)}", found)

    def _refuse(self, name: str, expected: str, found: object) -> None:
        raise UserError(f"claim {self.id!r}: {name}: expected {expected}, found {found!r}".replace("\n", " "))
