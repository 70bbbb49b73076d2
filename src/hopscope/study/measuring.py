"""Measuring members, in training, at checkpoints, and of the whole run; loads torch where it measures."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.source import source_hash
from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.study.jobs import Job, ensemble_of, job_of, task_of
from hopscope.study.measure import CHUNK, KEYS, Context, Measure, Row, rows_of
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.models.transformer import Transformer
    from hopscope.tasks import Batch
    from hopscope.training.train import TimeBudget

Say = Callable[[str], object]
_Taken = tuple[Measure, int | None]  # a measure of a unit at a step, or of the whole run at none


def training_of(unit: UnitFolder, study: Study, budget: "TimeBudget") -> dict[str, Any]:
    """Arguments of `training.train` for a unit, from its newest checkpoint; `UserError`: a faulty start."""
    here, latest = _Unit(unit, study, budget), unit.latest()
    return {
        "task": here.task, "model": here.job.model, "training": here.job.training,
        "seeds": [each.data_seed for each in unit.members], "init_seeds": [each.init_seed for each in unit.members],
        "start": _start(study, here.job) if latest is None else None, "after": latest and latest[1], "keep": unit.keep,
        "device": here.job.device, "engine": here.job.engine, "evaluate": here.evaluate, "budget": budget,
    }  # fmt: skip


def measure_unit(unit: UnitFolder, study: Study, budget: "TimeBudget", say: Say = lambda words: None) -> None:
    """Measure a trained unit; what is done stays when the time is up.  `UserError`: a measure has a fault."""
    _measure(unit, study, _Unit(unit, study, budget, say).at, budget, say)


def measure_run(
    run: RunFolder, study: Study, budget: "TimeBudget", say: Say = lambda words: None, device: str = "auto"
) -> None:
    """Do what is measured once for the whole run, when its units are done; as `measure_unit`."""
    units = {unit.name: _Unit(unit, study, budget, say) for unit in run.units}

    def context(measure: Measure, step: int | None) -> Context:
        return Context(
            measure, source_of(measure, study), run, run.whole, study.options, budget, say=say, device=device,
            of_measure=partial(rows_of_run, run, study),
            of_checkpoint=lambda unit, step: units[unit.name].at(measure, step),
        )  # fmt: skip

    _measure(run.whole, study, context, budget, say)


def is_measured(unit: UnitFolder, study: Study) -> bool:
    """Whether every measure of a trained unit has been taken, as it is now; loads no torch."""
    return next(_lacking(unit, study), None) is None


def rows_of_run(run: RunFolder, study: Study, measure: str | None = None) -> Iterator[Row]:
    """Rows for the evidence, of training and measures or of one; `UserError`: some are damaged or missing."""
    for unit in run.units:
        if measure in (None, "training"):
            yield from map(dict, unit.rows())
        yield from _rows_of(unit, study, _taken(unit, study, measure))
    yield from _rows_of(run.whole, study, _taken(run.whole, study, measure))


def source_of(measure: Measure, study: Study) -> str:
    """Hash of what decides a measure's numbers, beside the run: its source, and those of the measures that it needs."""
    known = {each.name: each for each in study.measures}

    def with_needs(each: Measure) -> tuple[Measure, ...]:
        return each, *(other for name in each.needs for other in with_needs(known[name]))

    return _source(with_needs(measure))


def take_sources(study: Study) -> None:
    """Look at the code of measures now: of a notebook it may have changed, and files may be edited later on."""
    _source.cache_clear()
    for each in study.measures:
        source_of(each, study)


@lru_cache(maxsize=256)
def _source(measures: tuple[Measure, ...]) -> str:
    return source_hash(*(part for each in measures for part in (each.name, each.when, each.function)))


class _Unit:
    """A unit as its measures see it."""

    def __init__(self, unit: UnitFolder, study: Study, budget: "TimeBudget", say: Say = lambda words: None):
        self.unit, self.study, self.budget, self.say = unit, study, budget, say
        self.job = job_of(unit)
        self.task = task_of(self.job, study)

    @cached_property
    def options(self) -> Any:
        return self.study.of(Configuration(overrides=self.job.overrides)).options

    @cached_property
    def held_out(self) -> "Batch":
        from hopscope.tasks import held_out

        return held_out(self.task, self.job.held_out)

    def beside(self, ensemble: "Transformer") -> "Batch":
        """The held-out samples on the device of an ensemble."""
        return self.held_out.to(ensemble.readout.weight.device)

    def at(self, measure: Measure, step: int | None) -> Context:
        """The context of a checkpoint, by default the last: on the CPU, wherever it was trained."""
        return self.context(measure, ensemble_of(self.unit.members, [self.unit], self.task, step))

    def context(self, measure: Measure, ensemble: "Transformer") -> Context:
        step = ensemble.step or 0

        def rows(name: str) -> Iterable[Mapping[str, Any]]:
            # Of this step, or of all steps where a measure has none here; of training, those until the step.
            if name == "training":
                return [row for row in self.unit.rows() if row["step"] <= step]
            taken = [*_taken(self.unit, self.study, name)]
            return _rows_of(self.unit, self.study, [each for each in taken if each[1] == step] or taken)

        def other(unit: UnitFolder, step: int | None) -> Context:
            if unit.name != self.unit.name:
                words = 'expected its own unit, found another; write @hs.measure(when="run")'
                raise UserError(f"measure {measure.name}: {words}")
            return self.at(measure, step)

        return Context(
            measure, source_of(measure, self.study), RunFolder(self.unit.run_path), self.unit, self.options,
            self.budget, step, self.job, self.say,
            of_members=(ensemble, lambda: self.beside(ensemble)), of_measure=rows, of_checkpoint=other,
        )  # fmt: skip

    def evaluate(self, ensemble: "Transformer") -> Iterator[Row]:
        """What is recorded at an evaluation: losses, scores and groups on held-out samples, and what the study adds."""
        import torch

        from hopscope.tasks import losses

        held_out = self.beside(ensemble)
        pieces = held_out.pieces(max(1, CHUNK // len(ensemble)))
        predictions = torch.cat([ensemble(piece.inputs) for piece in pieces], 1)
        for metric, values in losses(self.task, predictions, held_out).items():
            yield {"split": "held_out", "metric": metric, "value": values}
        for measure in (each for each in self.study.measures if each.when == "training"):
            for row in _rows(self.context(measure, ensemble), measure.function):
                if "member" in row or "file" in row:
                    words = "expected a value for each member in training, found a member or a file"
                    raise UserError(f"measure {measure.name}: {words}; measure it at the checkpoints")
                numbers = [float("nan") if value is None else value for value in row["value"]]
                yield {"measure": measure.name, **row, "value": torch.tensor(numbers, dtype=torch.float64)}


def _taken(unit: UnitFolder, study: Study, name: str | None = None) -> Iterator[_Taken]:
    """Measures of a unit, or of the whole run, or one of them, in the order in which they need each other."""
    steps = job_of(unit).training.checkpoint_steps() if unit.job else []
    at = {"checkpoints": steps, "end": steps[-1:]} if unit.job else {"run": [None]}
    for each in study.measures:
        if name in (None, each.name):
            yield from ((each, step) for step in at.get(each.when, ()))


def _lacking(unit: UnitFolder, study: Study) -> Iterator[_Taken]:
    for each, step in _taken(unit, study):
        if unit.measured(each.name, source_of(each, study), step) is None:
            yield each, step


def _rows_of(unit: UnitFolder, study: Study, taken: Iterable[_Taken]) -> Iterator[Row]:
    for measure, step in taken:
        rows = unit.measured(measure.name, source_of(measure, study), step)
        if rows is None:
            words = f"expected the rows of measure {measure.name}, found none"
            again = "the same hopscope run measures it (if its file was edited since Python began: a new one)"
            raise UserError(f"{unit.path}: {words}; {again}")
        yield from map(dict, rows)


def _measure(
    unit: UnitFolder, study: Study, context_of: Callable[..., Context], budget: "TimeBudget", say: Say
) -> None:
    """Take the measures that are lacking, and keep their rows and arrays; those of their parts before."""
    for measure, step in _lacking(unit, study):
        budget.check()
        say(f"measuring {measure.name}")
        context = context_of(measure, step)
        context.of_part = partial(_part, context)
        rows = _without_diverged(_rows(context, measure.function), context)
        unit.keep_measure(measure.name, context.source, step, rows, context.arrays)


def _part(context: Context, name: str, function: Callable[[], Any]) -> list[Row]:
    name = f"{context.measure.name}+{name}"
    rows = context.unit.measured(name, context.source, context.step)
    if rows is None:
        context.budget.check()
        before, context.arrays = context.arrays, {}
        found = _rows(context, lambda context: function())
        rows = context.unit.keep_measure(name, context.source, context.step, found, context.arrays)
        context.arrays = before
    return [{key: row[key] for key in KEYS if key in row} for row in rows]


def _rows(context: Context, function: Callable[[Context], Any]) -> list[Row]:
    """What a measure returns, as rows; a fault in it is a line that names it.

    Without gradients (`with torch.enable_grad()` has them), but for a measure of the run, which may train.
    """
    import torch

    try:
        with torch.set_grad_enabled(context.measure.when == "run"):
            return rows_of(function(context), context)
    except HopscopeError:
        raise
    except Exception as error:
        found = f"found {in_words(error)}; mend the measure: what was trained is kept"
        raise UserError(f"measure {context.measure.name}: expected numbers, {found}") from error


def _without_diverged(rows: Sequence[Row], context: Context) -> list[Row]:
    """Rows without the numbers of members that had diverged by then."""
    whole, gone = context.step is None, dict[int, int]()
    for unit in context.run.units if whole else [context.unit]:
        diverged = zip(unit.members, unit.diverged_at(unit.steps[-1]), strict=True)
        gone |= {member.member: step for member, step in diverged if step is not None}

    def kept(member: Any, row: Row, value: Any) -> Any:
        return value if member not in gone or (not whole and row["step"] < gone[member]) else None

    found = []
    for row in rows:
        members, value = row.get("member", context.members), row["value"]
        if isinstance(value, list):
            value = [kept(member, row, each) for member, each in zip(members, value, strict=True)]
        elif not isinstance(members, tuple):
            value = kept(members, row, value)
        found.append({**row, "value": value})
    return found


def _start(study: Study, job: Job) -> Mapping[str, Any] | None:
    """Weights that a study begins from, checked; `None`: they are drawn."""
    import torch

    from hopscope.models.transformer import Transformer

    if study.start is None or (given := study.start(job)) is None:
        return None
    try:
        weights = {name: torch.as_tensor(weight) for name, weight in given.items()}
        Transformer(job.config, len(job.members)).load(weights)
    except Exception as error:
        words = f"expected the weights of {len(job.members)} members by name, found {in_words(error)}"
        raise UserError(f"start: {words}; mend the function") from error
    return weights
