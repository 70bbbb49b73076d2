"""A circuit as a value: which rows of which heads read what, while all other rows read nothing in particular."""

from collections.abc import Iterable

from hopscope import display
from hopscope.circuits.execution import Assignment, Execution, Mode, Passed, Slot
from hopscope.circuits.grammar import Grammar
from hopscope.config import Config
from hopscope.models.interventions import ReplacePattern, Roles
from hopscope.models.patterns import Identity, Learned, MeanMap, Rule, Uniform, reads_nothing


class Path(Config):
    """One read: the rows of a role, at one head.

    Attributes:
        layer, head: where, from 0.
        roles: of the rows that read.
        rule: what they read.
        query: the roles in words, such as `second 2`.
        target: what is read, in words, such as `first 2`.
    """

    layer: int
    head: int
    roles: Roles
    rule: Rule
    query: str
    target: str

    @property
    def targets(self) -> list[str]:
        """What is read, in words: two where there are two targets; of `match (item)` also the role of the token."""
        found = [target.removeprefix("all ") for target in self.target.split(" + ")]
        inside = [target.partition(" (")[2].removesuffix(")") for target in found]
        return [*found, *filter(None, inside)]

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}: {self.query} → {self.target or self.rule.kind}"


class Place(Config):
    """The rows of a role at one head, outside of the circuit."""

    layer: int
    head: int
    roles: Roles


Reads = tuple[tuple[int, str, str], ...]
"""Every read: after how many others it must come, the rows, and what they read."""


class Circuit(Config):
    """Paths, and what all other rows do.  It can be printed, compared, written as JSON, and run on a model.

    Two circuits are equal if they do the same reads in the same order of dependence, in whatever layers and heads.

    Attributes:
        paths: the reads, by layer, head and row.
        identities: rows outside of the circuit that read themselves; all others read uniformly.
    """

    paths: tuple[Path, ...]
    identities: tuple[Place, ...] = ()

    @classmethod
    def of(cls, assignment: Assignment, grammar: Grammar) -> "Circuit":
        """The circuit of an assignment."""
        paths, identities = [], []
        for slot in sorted(assignment.rules):
            (layer, head, role), rule = slot, assignment.rules[slot]
            roles = grammar.roles[role]
            if not reads_nothing(rule):
                query, target = grammar.words(roles), grammar.target(role, rule)
                paths.append(Path(layer=layer, head=head, roles=roles, rule=rule, query=query, target=target))
            elif isinstance(rule, Identity):
                identities.append(Place(layer=layer, head=head, roles=roles))
        return cls(paths=tuple(paths), identities=tuple(identities))

    @property
    def reads(self) -> Reads:
        """The canonical form: rows that follow a mean map are left out, they read by position alone.

        A read comes after those of lower layers that its rows, or what it reads, have done before.
        """
        paths = [path for path in self.paths if not isinstance(path.rule, MeanMap)]
        depth: dict[int, int] = {}
        for number, path in enumerate(paths):
            before = [
                depth[other]
                for other, earlier in enumerate(paths[:number])
                if earlier.layer < path.layer and earlier.query in (path.query, *path.targets)
            ]
            depth[number] = 1 + max(before, default=0)
        reads = {(depth[number], path.query, _said(path)) for number, path in enumerate(paths)}
        return tuple(sorted(reads))

    @property
    def heads(self) -> list[tuple[int, int]]:
        """Layer and head of those that read something."""
        return sorted({(path.layer, path.head) for path in self.paths})

    @property
    def explained(self) -> bool:
        """Whether every path follows a rule."""
        return not any(isinstance(path.rule, Learned) for path in self.paths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Circuit) and self.reads == other.reads

    def __hash__(self) -> int:
        return hash(self.reads)

    def __str__(self) -> str:
        return "\n".join(map(str, self.paths)) or "no path"

    def _repr_html_(self) -> str:
        columns = ("layer", "head", "rows", "read")
        rows = ((path.layer, path.head, path.query, path.target or path.rule.kind) for path in self.paths)
        return display.table(columns, rows) if self.paths else display.paragraph(str(self))

    def rules(self, grammar: Grammar, slots: Iterable[Slot]) -> dict[Slot, Rule]:
        """The rule of every slot, uniform where no path names one."""
        found: dict[Slot, Rule] = {slot: Uniform() for slot in slots}
        for place in self.identities:
            found[place.layer, place.head, grammar.roles.index(place.roles)] = Identity()
        for path in self.paths:
            found[path.layer, path.head, grammar.roles.index(path.roles)] = path.rule
        return found

    def interventions(self, execution: Execution, mode: Mode = "rules") -> list[ReplacePattern]:
        """This circuit as interventions: a model under them predicts what `run` does, more slowly.

        Args:
            execution: the model and the batch, whose row roles are meant.
            mode: as of `run`.
        """
        found: list[ReplacePattern] = []
        if mode == "rules":  # rows of no role keep the pattern of the model as it is
            layers = range(execution.model.config.layers)
            found += [ReplacePattern(layer=layer, by=Learned()) for layer in layers]
        for (layer, head, role), rule in self.rules(execution.grammar, execution.slots).items():
            if mode == "rules" or reads_nothing(rule):
                # A row on which a rule leads nowhere reads itself.
                found += [
                    ReplacePattern(layer=layer, heads=(head,), rows=execution.grammar.roles[role], by=by)
                    for by in (Identity(), rule)
                ]
        return found

    def run(self, execution: Execution, mode: Mode = "rules") -> Passed:
        """Run a model under this circuit.

        Args:
            execution: the model and the batch.
            mode: `"rules"`: every pattern is given; `"recomputed"`: paths use their own softmax.
        """
        rules = self.rules(execution.grammar, execution.slots)
        return execution.run(execution.assigned(execution.untouched(), rules), mode)


def _said(path: Path) -> str:
    return path.target or path.rule.kind
