"""Measures: functions that say what is measured of trained members, what they are given, and the rows that they give.

A measure is given a `Context` and returns what becomes rows of the evidence table (docs/evidence.md): a mapping from
metric to values `[member]`, `[member, layer]` or `[member, layer, head]`, where `metric@name` is the metric of the part
`name`; or rows, one dict each, with some of `KEYS`; or nothing, if it saves arrays only.

Loads no torch: files of studies import it, and listing studies stays quick.
"""

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, overload

from hopscope.errors import UserError

if TYPE_CHECKING:
    from hopscope.models.transformer import Transformer
    from hopscope.runs import Evidence, RunFolder, UnitFolder
    from hopscope.tasks import Batch, Task
    from hopscope.training.train import TimeBudget

When = Literal["end", "checkpoints", "training", "run"]
"""After training; at every checkpoint; at every evaluation during training; once for the whole run, at its end."""

Row = dict[str, Any]
Function = Callable[["Context"], Any]

CHUNK = 4096
"""Samples of one forward pass, those of all members together: bounds memory, not results."""

KEYS = ("metric", "value", "layer", "head", "part", "split", "step", "file", "member")
"""What a measure's rows may say; `member`: of one member alone, or of some, in a list."""


@dataclass(frozen=True)
class Measure:
    """Something that is measured of trained members; called with a context, it measures.

    Attributes:
        name: stands in the column `measure` of the evidence table.
        when: see `When`.
        function: measures.
        needs: names of measures that must be done before; their rows are `context.rows(name)`.
    """

    name: str
    when: When
    function: Function
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.name):  # it becomes part of a file's name
            wanted = "a name of letters, digits, '_', '.' and '-'"
            raise UserError(f"measure: expected {wanted}, found {self.name!r}; give name=…")
        if self.when not in get_args(When):
            raise _wrong(self, f"when to be one of {', '.join(get_args(When))}", repr(self.when))
        if not takes_one_argument(self.function):
            found = f"{self.name}{inspect.signature(self.function)}; let a function of the rest return the measure"
            raise _wrong(self, "a function of one argument, the context", found)

    def __call__(self, context: "Context") -> Any:
        """What the function gives."""
        return self.function(context)


def takes_one_argument(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    return True


Needs = Sequence[str | Measure]


@overload
def measure(
    function: Function, *, when: When = ..., needs: Needs = ..., name: str | None = ...
) -> Measure: ...
@overload
def measure(
    *, when: When = ..., needs: Needs = ..., name: str | None = ...
) -> Callable[[Function], Measure]: ...
def measure(
    function: Function | None = None, *, when: When = "end", needs: Needs = (), name: str | None = None
) -> Measure | Callable[[Function], Measure]:
    """Make a `Measure` of a function: `@hopscope.measure(when="checkpoints")`, or `@hopscope.measure` alone.

    A measure with arguments is a function that returns one, such as `hopscope.measures.attention_to`.

    Args:
        function, when: what measures, and when.
        needs: measures, or their names, that must be done before.
        name: by default the function's; `UserError`: no file can have it.
    """
    needed = tuple(each.name if isinstance(each, Measure) else each for each in needs)

    def made(function: Function) -> Measure:
        if not callable(function):
            wanted = "a function of the context"
            raise UserError(f"measure: expected {wanted}, found {function!r}; write @hs.measure(when=…)")
        return Measure(name or str(getattr(function, "__name__", "")), when, function, needed)

    return made if function is None else made(function)


def in_order(measures: Iterable[Any]) -> tuple[Measure, ...]:
    """Measures, each behind those that it needs; `UserError`: two have one name, or one needs what is not there."""
    known: dict[str, Measure] = {}
    for each in measures:
        name = each.name if isinstance(each, Measure) else getattr(each, "__name__", repr(each))
        if not isinstance(each, Measure):
            words = f"write @hs.measure(when=…) before it, or call it if it returns a measure: {name}(…)"
            raise UserError(f"measures: expected measures, found {name}; {words}")
        if name in known:
            raise UserError(f"measures: expected measures with different names, found {name!r} twice")
        known[name] = each
    found: dict[str, Measure] = {}

    def add(each: Measure, above: tuple[str, ...]) -> None:
        if each.name in above:
            raise _wrong(each, "needs without a circle", " → ".join((*above, each.name)))
        for name in each.needs:
            if name not in known:
                raise _wrong(each, f"{name!r}, which it needs, among the study's measures", ", ".join(known))
            when = known[name].when
            if when == "training" or each.when == "training" or (when == "run" and each.when != "run"):
                raise _wrong(each, f"its needs to be measured before it ({each.when})", f"{name} ({when})")
            add(known[name], (*above, each.name))
        found.setdefault(each.name, each)

    for each in known.values():
        add(each, ())
    return tuple(found.values())


@dataclass
class Context:
    """The argument of a measure.

    A measure of members (`when="end"`, `"checkpoints"` or `"training"`) has an ensemble; one of the whole run has
    `run.units`, and `at(unit, step)`, which is the context of a checkpoint.  Ensemble and samples are on the CPU; in
    training, on the device that trains.

    Attributes:
        measure: whose context it is; `source`: hash of what decides its numbers.
        run, unit: the folders; of the whole run, `unit` stands for all members.
        options: of the study, as they are for these members.
        budget: seconds that are left; work that can be taken up again looks at it (`budget.check()`).
        step, job: training steps of the checkpoint, and what its members are trained by (`Job`: label, model, training
            …); `None` for the whole run.
        say: told, in words, how a long measure goes; `arrays`: what `save` keeps; `device`: that the command asked for.
        of_members, of_measure, of_checkpoint, of_part: how the rest is found.
    """

    measure: Measure
    source: str
    run: "RunFolder"
    unit: "UnitFolder"
    options: Any
    budget: "TimeBudget"
    step: int | None = None
    job: Any = None
    say: Callable[[str], object] = lambda words: None
    arrays: dict[str, Any] = field(default_factory=dict)
    device: str = "auto"
    of_members: "tuple[Transformer, Callable[[], Batch]] | None" = field(default=None, repr=False)
    of_measure: Callable[[str], Iterable[Mapping[str, Any]]] = field(default=lambda name: (), repr=False)
    of_checkpoint: "Callable[[UnitFolder, int | None], Context] | None" = field(default=None, repr=False)
    of_part: "Callable[[str, Callable[[], Any]], list[Row]] | None" = field(default=None, repr=False)

    @property
    def members(self) -> tuple[int, ...]:
        """Run-global numbers of the members, in the order of every member axis."""
        return tuple(each.member for each in self.unit.members)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The members' seeds."""
        return tuple(each.seed for each in self.unit.members)

    def samples_at(self, step: int) -> int:
        """Training samples that each member has seen after a training step."""
        return step * int(self.job.training.batch_size)

    @property
    def ensemble(self) -> "Transformer":
        """The members at the checkpoint, which know their task, seeds and step."""
        return self._found("of_members")[0]

    @property
    def task(self) -> "Task":
        """The members' task."""
        return cast("Task", self.ensemble.task)

    @property
    def held_out(self) -> "Batch":
        """The held-out samples that the curves are measured on, with a member axis of 1."""
        return self._found("of_members")[1]()

    def batch(self, n: int = 64, use: str = "held-out") -> "Batch":
        """Samples of the task: `"held-out"`, `"train"` or `"probe"`; see `Transformer.batch`."""
        return self.ensemble.batch(n, use)

    def rows(self, measure: str) -> list[Row]:
        """Rows of a measure named in `needs`, one for each member: of the same checkpoint, or of the whole run."""
        if measure not in self.measure.needs:
            wanted = f"one of the measures that it needs ({', '.join(self.measure.needs) or 'none'})"
            raise _wrong(self.measure, wanted, f"{measure!r}; name it: needs=({measure!r},)")
        found = list[Row]()
        for row in self.of_measure(measure):
            members, values = dict(row).get("member"), row["value"]
            several = isinstance(values, list)
            pairs = zip(members or (), values, strict=True) if several else [(members, values)]
            found += [{**row, "member": member, "value": each} for member, each in pairs]
        return found

    @property
    def evidence(self) -> "Evidence":
        """What was recorded in training, until this step, as the evidence table has it."""
        from hopscope.runs import Evidence

        return Evidence.of(self.of_measure("training"), self.unit.members, self.run.config, self.run.path)

    def at(self, unit: "UnitFolder", step: int | None = None) -> "Context":
        """The context of a checkpoint, by default the last: of this unit, or, for a measure of the run, of any."""
        at = self._found("of_checkpoint", "a measure of checkpoints or of the run to ask for others")
        return at(unit, step)

    def part(self, name: str, function: Callable[[], Any]) -> list[Row]:
        """Rows of a part of a measure that takes long, such as one of many members; kept as soon as they are there.

        `function` gives what a measure may give.  A command that stopped goes on after the parts that are kept;
        `TimeBudgetReached`: the budget is spent before one begins.
        """
        return self._found("of_part", "a measure of checkpoints or of the run to have parts")(name, function)

    def save(self, name: str, array: Any) -> str:
        """Keep an array (or several by name: `name.key`) beside the rows; returns the name for their column `file`."""
        self._found("of_part", "a measure of checkpoints or of the run to save arrays")
        several = array if isinstance(array, Mapping) else {"": array}
        named = {f"{name}.{key}".removesuffix("."): each for key, each in several.items()}
        self.arrays |= {key: _numbers(self.measure, key, each) for key, each in named.items()}
        return name

    def _found(self, way: str, wanted: str = "a measure of members, or context.at(unit).…") -> Any:
        if (found := getattr(self, way)) is None:
            raise _wrong(self.measure, wanted, f"when={self.measure.when!r}")
        return found


def rows_of(returned: Any, context: Context) -> list[Row]:
    """What a measure returned, as rows; `value` is a list over the members, where a row does not name one of them."""
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        returned = [row for item in returned.items() for row in _of_metric(*item, context)]
    if isinstance(returned, str | bytes) or not isinstance(returned, Iterable) or hasattr(returned, "detach"):
        raise _wrong(context.measure, "a mapping from metric to values, or rows", type(returned).__name__)
    return [_row(given, context) for given in returned]


def _of_metric(metric: Any, values: Any, context: Context) -> Iterator[Row]:
    """Rows, as a measure may give them, of values `[member]`, `[member, layer]` or `[member, layer, head]`."""
    array, axes = _numbers(context.measure, metric, values), ("member", "layer", "head")
    sizes = [len(context.members), *array.shape[1:3]]
    if context.of_members is not None:
        sizes[1:] = context.ensemble.config.layers, context.ensemble.config.heads
    if array.ndim > 3 or (array.ndim > 1 and [*array.shape] != sizes[: array.ndim]):
        words = " or ".join(f"[{', '.join(axes[:n])}] = {sizes[:n]}" for n in (1, 2, 3))
        raise _wrong(context.measure, f"values of {metric} of shape {words}", f"{[*array.shape]}")
    for place in itertools.product(*map(range, array.shape[1:])):
        at = dict(zip(axes[1:], place, strict=False))
        yield {"metric": metric, **at, "value": array[(slice(None), *place)] if array.ndim else array}


def _row(given: Any, context: Context) -> Row:
    measure, whole = context.measure, context.step is None
    if not isinstance(given, Mapping) or "metric" not in given or any(name not in KEYS for name in given):
        found = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise _wrong(measure, f"rows as dicts with some of {', '.join(KEYS)}, metric among them", found)
    metric, step, value, member = (given.get(name) for name in ("metric", "step", "value", "member"))
    if not isinstance(metric, str) or not metric:
        raise _wrong(measure, "the name of a metric", repr(metric))
    name, _, group = metric.partition("@")
    whole_number = partial(_whole_number, measure)
    at = (context.step or 0) if step is None else whole_number(step)
    row: Row = {"metric": name, "split": given.get("split") or "held_out", "step": at}
    row |= {"part": group} if group else {}
    row |= {} if whole else {"samples": context.samples_at(at)}
    for key, kind in (("layer", whole_number), ("head", whole_number), ("part", str), ("file", str)):
        if given.get(key) is not None:
            row[key] = kind(given[key])
    inside = [each for each in context.arrays if each.startswith(f"{row.get('file')}.")]
    row |= {"file": inside[0]} if inside else {}  # of several arrays in one file any name stands for it
    if member is not None:
        row["member"] = member = (
            [*map(whole_number, member)] if isinstance(member, Iterable) else whole_number(member)
        )
    count = len(member) if isinstance(member, list) else len(context.members)
    single = isinstance(member, int)
    if value is None:
        value = math.nan if single or whole else [math.nan] * count
    array = _numbers(measure, metric, value)
    # Of the whole run a row may have one number, or one for each member.
    if array.shape != (() if single or (whole and member is None and not array.ndim) else (count,)):
        wanted = f"a value of {metric} for each of {count} members, or one number of a member"
        raise _wrong(measure, wanted, f"shape {[*array.shape]}" if array.ndim else "one number")
    plain = [None if math.isnan(each) else float(each) for each in array.reshape(-1)]
    return {**row, "value": plain if array.ndim else plain[0]}


def _whole_number(measure: Measure, value: Any) -> int:
    if (number := int(value)) != float(value):
        raise _wrong(measure, "a whole number as step, layer, head or member", repr(value))
    return number


def _numbers(measure: Measure, metric: Any, values: Any) -> Any:
    import numpy as np

    try:
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
        if array.dtype.kind in "cmM":  # complex numbers and times
            raise TypeError
        # Of other kinds there are lists in which None is missing.
        # Longer numbers than those of 8 bytes have no place in a file.
        storable = array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
        return array if storable else array.astype(np.float64)
    except (TypeError, ValueError):
        raise _wrong(measure, f"numbers as values of {metric}", type(values).__name__) from None


def _wrong(measure: Measure, expected: str, found: str) -> UserError:
    return UserError(f"measure {measure.name}: expected {expected}, found {found}")
