"""A circuit as a value: which rows of which heads read what, while all other rows read nothing in particular."""

from collections.abc import Mapping

from hopscope.circuits.execution import Execution, Mode, Pass, Slot
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.rules import Learned, Roles, Rule, TwoTargets, Uniform, is_sharp, reads_nothing, said
from hopscope.config import Config
from hopscope.errors import UserError


class Path(Config):
    """What the rows of a role do at one head.

    Attributes:
        layer, head: where, from 0.
        roles: of the rows; `query` says them in words, such as `second 2`.
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

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}: {self.query} → {self.read}"


class Circuit(Config):
    """Paths, and what all other rows do.  It can be printed, compared, run, and written as JSON (`model_dump_json`).

    Two circuits are equal if they do the same reads in the same order of dependence, in whatever layers and heads.

    Attributes:
        paths: the reads, by layer, head and row.
        identities: rows outside of the circuit that read themselves; all others read uniformly.
    """

    paths: tuple[Path, ...] = ()
    identities: tuple[Path, ...] = ()

    @classmethod
    def of(cls, rules: Mapping[Slot, Rule], grammar: Grammar) -> "Circuit":
        """The circuit of the rules of all slots."""
        paths: dict[bool, list[Path]] = {False: [], True: []}
        for slot in sorted(slot for slot, rule in rules.items() if not isinstance(rule, Uniform)):
            (layer, head, role), roles, rule = slot, grammar.roles[slot[2]], rules[slot]
            words = {"query": grammar.words(roles), "target": grammar.target(role, rule)}
            paths[reads_nothing(rule)].append(Path(layer=layer, head=head, roles=roles, rule=rule, **words))
        return cls(paths=tuple(paths[False]), identities=tuple(paths[True]))

    @property
    def reads(self) -> tuple[tuple[int, str, str], ...]:
        """The canonical form, every read: after how many others it comes, the rows, and what they read.

        A read comes after those of lower layers that its rows, or what it reads, have done before.  Rows that follow a
        mean map are left out: they read by position alone.
        """
        depth: list[tuple[int, Path]] = []
        for path in sorted((each for each in self.paths if is_sharp(each.rule)), key=lambda each: each.layer):
            read = [target.removeprefix("all ") for target in path.target.split(" + ")]
            # Of `match (item)` also the role of the token.
            of_match = [target.partition(" (")[2].removesuffix(")") for target in read if " (" in target]
            seen, rule = (path.query, *read, *of_match), path.rule
            # Roles of what is read, which may be fewer than those of rows: `all y` is `y 1` as well.
            parts = (rule.first, rule.second) if isinstance(rule, TwoTargets) else (rule,)
            keys = [found for each in parts if (found := getattr(each, "keys", None))]
            below = [
                deep for deep, other in depth if other.layer < path.layer
                and (other.query in seen or any(each.items() <= other.roles.items() for each in keys))
            ]  # fmt: skip
            depth.append((1 + max(below, default=0), path))
        return tuple(sorted({(deep, path.query, path.read) for deep, path in depth}))

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

    def rules(self, execution: Execution) -> dict[Slot, Rule]:
        """The rule of every slot, uniform where no path names one; a `UserError` if a path has no slot here."""
        found: dict[Slot, Rule] = dict.fromkeys(execution.slots, Uniform())
        roles, config = execution.grammar.roles, execution.model.config
        for path in (*self.identities, *self.paths):
            slot = path.layer, path.head, roles.index(path.roles) if path.roles in roles else -1
            if slot not in found:
                raise UserError(
                    f"circuit: expected rows and heads of a model of {config.layers} layers with {config.heads} heads, "
                    f"found {path}; take a circuit of a model of the same shape and task"
                )
            found[slot] = path.rule
        return found

    def run(self, execution: Execution, mode: Mode = "rules") -> Pass:
        """Run a model under this circuit: every pattern is given by its rule, or paths use their own softmax."""
        return execution.under(execution.clean._replace(mode=mode), self.rules(execution))
