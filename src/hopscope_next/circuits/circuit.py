"""A circuit as a value: which rows of which heads read what, while all other rows read nothing in particular."""

from collections.abc import Iterable
from html import escape

from hopscope_next.circuits.execution import Assignment, Execution, Mode, Passed, Slot
from hopscope_next.circuits.grammar import Grammar
from hopscope_next.circuits.interventions import ReplacePattern
from hopscope_next.circuits.rules import Identity, Learned, MeanMap, Roles, Rule, Uniform, reads_nothing, said
from hopscope_next.config import Config
from hopscope_next.errors import UserError


class Path(Config):
    """One read: the rows of a role, at one head.

    Attributes:
        layer, head: where, from 0.
        roles: of the rows that read; `query` says them in words, such as `second 2`.
        rule: what they read; `target` says it in words, such as `first 2`, where words tell more than the rule.
    """

    layer: int
    head: int
    roles: Roles
    rule: Rule
    query: str
    target: str

    @property
    def read(self) -> str:
        """What is read, in words."""
        return self.target or said(self.rule)

    @property
    def targets(self) -> list[str]:
        """What is read, in words: two where there are two targets; of `match (item)` also the role of the token."""
        found = [target.removeprefix("all ") for target in self.target.split(" + ")]
        return [*found, *(target.partition(" (")[2].removesuffix(")") for target in found if " (" in target)]

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}: {self.query} → {self.read}"


class Place(Config):
    """The rows of a role at one head, outside of the circuit."""

    layer: int
    head: int
    roles: Roles


class Circuit(Config):
    """Paths, and what all other rows do.  It can be printed, compared, run, and written as JSON (`model_dump_json`).

    Two circuits are equal if they do the same reads in the same order of dependence, in whatever layers and heads.

    Attributes:
        paths: the reads, by layer, head and row.
        identities: rows outside of the circuit that read themselves; all others read uniformly.
    """

    paths: tuple[Path, ...] = ()
    identities: tuple[Place, ...] = ()

    @classmethod
    def of(cls, assignment: Assignment, grammar: Grammar) -> "Circuit":
        """The circuit of an assignment."""
        paths, identities = list[Path](), list[Place]()
        for (layer, head, role), rule in sorted(assignment.rules.items(), key=lambda item: item[0]):
            roles = grammar.roles[role]
            if not reads_nothing(rule):
                words = {"query": grammar.words(roles), "target": grammar.target(role, rule)}
                paths.append(Path(layer=layer, head=head, roles=roles, rule=rule, **words))
            elif isinstance(rule, Identity):
                identities.append(Place(layer=layer, head=head, roles=roles))
        return cls(paths=tuple(paths), identities=tuple(identities))

    @property
    def reads(self) -> tuple[tuple[int, str, str], ...]:
        """The canonical form, every read: after how many others it comes, the rows, and what they read.

        A read comes after those of lower layers that its rows, or what it reads, have done before.  Rows that follow a
        mean map are left out: they read by position alone.
        """
        paths = [path for path in self.paths if not isinstance(path.rule, MeanMap)]
        depth: list[int] = []
        for path in paths:
            before = zip(depth, paths, strict=False)
            below = [
                deep
                for deep, other in before
                if other.layer < path.layer and other.query in (path.query, *path.targets)
            ]
            depth.append(1 + max(below, default=0))
        return tuple(sorted({(deep, path.query, path.read) for deep, path in zip(depth, paths, strict=True)}))

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
        head = "".join(f"<th>{column}</th>" for column in columns)
        cells = ((path.layer, path.head, path.query, path.read) for path in self.paths)
        rows = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in cells)
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"

    def rules(self, execution: Execution) -> dict[Slot, Rule]:
        """The rule of every slot, uniform where no path names one.

        Raises:
            UserError: the model has no such head, or the task no such rows.
        """
        grammar = execution.grammar
        found: dict[Slot, Rule] = {slot: Uniform() for slot in execution.slots}
        every: Iterable[tuple[Path | Place, Rule]] = (
            *((place, Identity()) for place in self.identities),
            *((path, path.rule) for path in self.paths),
        )
        for at, rule in every:
            role = grammar.roles.index(at.roles) if at.roles in grammar.roles else -1
            if (at.layer, at.head, role) not in found:
                config = execution.model.config
                raise UserError(
                    f"circuit: expected rows and heads of a model of {config.layers} layers with {config.heads} heads, "
                    f"found {at}; take a circuit of a model of the same shape and task"
                )
            found[at.layer, at.head, role] = rule
        return found

    def run(self, execution: Execution, mode: Mode = "rules") -> Passed:
        """Run a model under this circuit: every pattern is given by its rule, or paths use their own softmax."""
        return execution.run(execution.assigned(execution.untouched, self.rules(execution)), mode)

    def interventions(self, execution: Execution, mode: Mode = "rules") -> list[ReplacePattern]:
        """This circuit as interventions: a model under them predicts what `run` does, more slowly."""
        found: list[ReplacePattern] = []
        if mode == "rules":  # rows of no role keep the pattern of the model as it is
            layers = range(execution.model.config.layers)
            found += [ReplacePattern(layer=layer, by=Learned()) for layer in layers]
        for (layer, head, role), rule in self.rules(execution).items():
            if mode == "rules" or reads_nothing(rule):
                # A row on which a rule leads nowhere reads itself.
                rows = execution.grammar.roles[role]
                found += [
                    ReplacePattern(layer=layer, heads=(head,), rows=rows, by=by) for by in (Identity(), rule)
                ]
        return found
