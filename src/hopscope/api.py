"""The library in a few calls: run a study, open a run, train without one.

A run goes one way (docs/architecture.md): the study is planned, its folder made, its units trained and measured by
workers; then evidence, verdicts and page are written from what is in the folder.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopscope.claims import Ledger
from hopscope.claims.judge import judge
from hopscope.errors import UserError, printable
from hopscope.execute.local import ThisMachine
from hopscope.execute.places import place_of
from hopscope.execute.pool import Listener, Place, train_all
from hopscope.runs import Evidence, Member, RunFolder
from hopscope.study import jobs, measuring
from hopscope.study.load import Loaded, load, loaded_as, loading
from hopscope.study.study import Study

if TYPE_CHECKING:
    from hopscope.circuits.reader import Reading
    from hopscope.models.config import Model
    from hopscope.models.transformer import Transformer
    from hopscope.tasks import Task
    from hopscope.training.config import CompletionName, Training

Say = Callable[[str], None]


def run(
    study: "Study | str",
    preset: str | None = None,
    *,
    out: Path | str = "runs",
    device: str = "auto",
    threads: int | None = None,
    time_budget: float | None = None,
    executor: str = "local",
    address: str | None = None,
    tracker: str | Sequence[str] = (),
    fields: Mapping[str, Any] | None = None,
    listen: Listener = lambda unit, message: None,
    say: Say = lambda words: None,
    **more: Any,
) -> "Run":
    """Run a study, or go on with it, or find it finished.

    A study of a file or a package is trained by worker processes, which load it from there.  A study of a notebook, or
    one that was made inside a function, is trained in this process, one unit after another.

    Args:
        study: a study, the name of one, `package.module:name`, or `file.py`.
        preset: the fields to start from; by default `laptop` where the study has it, else the study as written.
        out, device, threads, time_budget, executor, address, tracker: as on the command line; `out` is the root of the
            runs, or a URL where a copy of the run is kept.
        fields: dotted fields that differ from the preset, such as `{"training.steps": 300}`.
        listen: called with unit and message of a worker; `say` with news.
        more: as `fields`, for names without a dot, such as `seeds=3`.

    `UserError`: something that the user can mend; `TimeBudgetReached`: the same call goes on.
    """
    from hopscope.execute.track import check_trackers, followed
    from hopscope.training.train import TimeBudget

    if (file := loading.get()) is not None:
        found = 'found a call of hopscope.run; put it under `if __name__ == "__main__":`'
        raise UserError(f"{file}: expected a file that only defines its study when it is loaded, {found}")
    if not str(out):
        raise UserError("out: expected a folder, found an empty path; name one, such as 'runs'")
    if threads is not None and not (isinstance(threads, int) and threads >= 1):
        raise UserError(f"threads: expected a whole number from 1, found {threads!r}")
    if time_budget is not None and not (isinstance(time_budget, int | float) and time_budget > 0):
        raise UserError(f"time-budget: expected a number of seconds above 0, found {time_budget!r}")
    trackers = [tracker] if isinstance(tracker, str) else list(tracker)
    check_trackers(trackers)
    loaded = _loaded(study)
    with loaded.naming():
        loaded.template()
        measuring.take_sources(loaded.study)
        preset, chosen = loaded.study.preset(preset), loaded.study.chosen(preset, {**(fields or {}), **more})
    loaded = replace(loaded, study=chosen)
    budget = TimeBudget(time_budget)
    with place_of(executor, address, loaded, say) as place:
        with loaded.naming():
            # A study that trains nothing may measure on a GPU.
            asked = chosen.task is not None or device == "cuda"
            planned = jobs.plan(chosen, place.device(device) if asked else "cpu")
            record = jobs.record(loaded, planned, preset)
        folder, send = _made(out, executor, record, say)
        with folder.locked(), followed(folder, trackers, say):

            def hear(unit: Any, message: Mapping[str, Any]) -> None:
                listen(unit, message)
                if message["kind"] == "done":
                    send(folder)

            folder.take_over()
            _check_device(folder, place)
            train_all(folder, loaded, place, cores=threads, seconds=budget.left, listen=hear)
            with loaded.naming():
                measuring.measure_run(folder, chosen, budget, say, device)
                conclude(folder, loaded)
            send(folder)
    return Run(folder, loaded)


def conclude(folder: RunFolder, loaded: Loaded) -> None:
    """Finish a trained run: write evidence, verdicts and page; `UserError`: one of these has a fault."""
    from hopscope.page.page import write_page
    from hopscope.training.config import departures

    study = loaded.study
    known: dict[str, Any] = {"registered": folder.registration}
    if (folder.path / "claims.json").exists():
        known["before"] = Ledger.from_json(folder.read("claims.json"), f"{folder.path / 'claims.json'}")
    for path in (folder.path / "figures").glob("*.*"):
        if path.suffix in (".svg", ".png"):
            folder.read(f"figures/{path.name}")  # refuses a drawing that was altered, while its sum is known
    folder.reopen()
    table = Evidence.of(measuring.rows_of_run(folder, study), folder.members, folder.config, folder.path)
    table.write(folder.path / "evidence.parquet")
    if study.task is not None:
        # One word where every configuration is trained as it says, else what differs.
        trained = map(jobs.job_of, folder.units)
        others = [departures(study.completion, each.model, each.training) for each in trained]
        differ = {name: f"{name} {value}" for other in others for name, value in other.items()}
        known["completion"] = ", ".join([study.completion, *differ.values()])
    verdicts = Ledger(judge(claim, table, **known) for claim in study.all_claims())
    folder.write("claims.json", verdicts.to_json())
    write_page(folder, loaded)
    folder.finish()


def conclude_again(folder: RunFolder) -> None:
    """Conclude a run that was trained but not concluded; any other is left as it is.  Errors as of `conclude`."""
    if folder.is_concluded or not all(unit.is_whole for unit in folder.units):
        return
    loaded = jobs.of_run(folder)
    with loaded.naming():
        measuring.take_sources(loaded.study)
        if measuring.is_measured(folder.whole, loaded.study):
            with folder.locked():
                conclude(folder, loaded)


def open_run(path: Path | str, study: "Study | str | None" = None) -> "Run":
    """A run folder, or the only run under a root.

    `study` is given where the run cannot find its own: a file that was moved, or a notebook.  `UserError`: there is no
    run, there are several, or the study's task is not the one of the run.
    """
    folder = RunFolder.opened(path)
    return Run(folder, None if study is None else jobs.fitted(_loaded(study), folder))


def train(
    task: "Task",
    model: "Model",
    training: "Training",
    seeds: int | Sequence[int] = 1,
    *,
    completion: "CompletionName" = "torch-schedule",
    device: str = "cpu",
) -> "Transformer":
    """Train members in this process, without a run folder.

    `task`, `model`, `training` and `completion` are as in a study; `seeds`: how many, or which.  A member that diverged
    keeps the last weights that it had.  `UserError`: the model does not fit the task, or there is no such completion or
    device.
    """
    from hopscope.training.train import train as trained

    whole: Any = Study(name="train", task=task, completion=completion, model=model, training=training)
    return trained(task, whole.model, whole.training, seeds, device=ThisMachine().device(device))


class Run:
    """A run, as a reader opens it: evidence, claims and weights are there without the study's file.

    Attributes:
        folder, path, config: its folder, where that is, and what was asked for (study, identity, units, registration).
        members: all of them: number, seed, configuration, overrides.
    """

    def __init__(self, folder: RunFolder, loaded: Loaded | None = None):
        self.folder, self.path, self._given = folder, folder.path, loaded
        self.config, self.members = folder.config, folder.members

    @cached_property
    def evidence(self) -> Evidence:
        """Everything that was measured, one tidy table; a `UserError` if there is none yet, or it is damaged."""
        return Evidence.read(self.folder)

    @cached_property
    def claims(self) -> Ledger:
        """Every claim with its verdict: a table in a notebook, a ledger when printed; or a `UserError`."""
        if (self.path / "claims.json").is_file() and not self.folder.is_concluded:
            words = "expected a run that was concluded, found one that a fault or another command stopped"
            raise UserError(f"{self.path}: {words}; the same hopscope run goes on")
        return Ledger.from_json(self.folder.read("claims.json"), str(self.path / "claims.json"))

    @cached_property
    def loaded(self) -> Loaded:
        """The study; a `UserError` if its file is gone or has changed."""
        return self._given or jobs.of_run(self.folder)

    def member(self, number: int, step: int | None = None) -> "Transformer":
        """One trained member, by its number in the run, as a plain `torch.nn.Module` that knows its task.

        `step` is that of the checkpoint, by default the last; `UserError`: there is no such member or checkpoint.
        """
        return self._together([self._known(number)], step).member(0)

    def ensemble(self, *, step: int | None = None, **where: Any) -> "Transformer":
        """The members of one configuration at a checkpoint, by default the last, as one ensemble.

        `where`: fields in which configurations differ, such as `**{"model.layers": 2}`; also `configuration`, by its
        label, `member` and `seed`, one or several.  `UserError`: these are no members, or of several configurations.
        """
        numbers = self.evidence.where(**where).members
        chosen = [member for member in self.members if member.member in set(numbers)]
        if not chosen:
            expected = f"members with {where or 'anything'}"
            raise UserError(f"ensemble: expected {expected}, found none in {self.path}")
        if len({member.configuration for member in chosen}) > 1:
            import pandas as pd

            given = pd.DataFrame([member.overrides for member in chosen], dtype=object).map(str)
            several = ((name, each.unique()) for name, each in given.items())
            differ = [f"{name}: {', '.join(words)}" for name, words in several if len(words) > 1]
            found = f"found {'; '.join(differ) or 'several labels'}; choose one"
            raise UserError(f"ensemble: expected members of one configuration, {found}")
        return self._together(chosen, step)

    def circuit(
        self, number: int, step: int | None = None, say: Say = lambda words: None, **config: Any
    ) -> "Reading":
        """Read the circuit of a member; `say` is told what is being done.

        `config`: fields of `hopscope.circuits.reader.ReaderConfig`, such as `threshold` or `proof`; the rest as of
        `member`.
        """
        from hopscope.circuits.reader import ReaderConfig, read

        member = self.member(number, step)
        assert member.task is not None
        return read(member, member.task, ReaderConfig(**config), say)

    def export(self, number: int, to: Path | str, step: int | None = None) -> None:
        """Write a member as a folder: in GPT-2's layout where that fits, which transformers opens too.

        `UserError`: there is no such member or checkpoint, or the folder holds something else.
        """
        from hopscope.models.export import save

        model, member = self.member(number, step), self._known(number)
        about = {"study": self.config["study"], "run": self.path.name, "configuration": member.configuration}
        save(model, Path(to), {**about, "seed": member.seed, "step": model.step})

    def _known(self, number: int) -> Member:
        if not 0 <= number < len(self.members):
            known = f"one of 0 to {len(self.members) - 1}" if self.members else "none, as nothing was trained"
            raise UserError(f"member: expected {known}, found {number}")
        return self.members[number]

    def _together(self, members: Sequence[Member], step: int | None) -> "Transformer":
        """Members of one configuration, which may be of several units, as one ensemble."""
        wanted = {each.unit for each in members}
        units = [unit for unit in self.folder.units if unit.name in wanted]
        job = jobs.job_of(units[0])
        return jobs.ensemble_of(members, units, lambda: jobs.task_of(job, self.loaded.study), step)

    def _repr_html_(self) -> str:
        about = f"study {self.config['study']}, preset {self.config.get('preset') or 'none'}, {self.path}"
        whole = [unit.is_whole for unit in self.folder.units]
        state = f"<p>{sum(whole)} of {len(whole)} units are done.</p>"
        if (self.path / "claims.json").is_file():
            state = self.claims._repr_html_()
        told = (f"{each.member}: {each.configuration}, seed {each.seed}" for each in self.members)
        lines = "".join(f"<div>{escape(printable(words))}</div>" for words in told)
        folded = f"<details><summary>{len(self.members)} members</summary>{lines}</details>"
        return f"<p><b>{escape(printable(about))}</b></p>{state}{folded}"


def _made(
    out: Path | str, executor: str, record: Mapping[str, Any], say: Say
) -> tuple[RunFolder, Callable[[RunFolder], None]]:
    # The folder of a run, and what sends a copy of it to a URL: work is done here, and goes on from what is there.
    url, study = str(out), record["study"]
    if "://" not in url:
        root = Path(os.path.expanduser(out))  # noqa: PTH111 - leaves the name of an unknown user as it is
        return RunFolder.named(root, study, record["identity"]).create(record), lambda run: None
    if executor != "local":
        remedy = "mount that storage as a file system, and give the path"
        wanted = f"a folder that all machines share for {executor}, found the URL {url}"
        raise UserError(f"out: expected {wanted}; {remedy}")
    from hopscope.runs.mirror import NoMirror, fetch, mirror, shown

    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = caches / "hopscope" / "runs" / hashlib.sha256(url.encode()).hexdigest()[:12]
    run = RunFolder.named(root, study, record["identity"])
    with contextlib.suppress(NoMirror):
        fetch(f"{url.rstrip('/')}/{study}/{run.path.name}", root)
    mirror(run.create(record), url)
    say(f"working in {run.path}; a copy is kept at {shown(url)}")
    return run, lambda run: mirror(run, url)


def _check_device(folder: RunFolder, place: Place) -> None:
    if any(unit.job["device"] == "cuda" and not unit.is_whole for unit in folder.units):
        try:
            place.device("cuda")
        except UserError:
            found = "a GPU, on which the run was begun, found none; go on where there is one"
            raise UserError(f"{folder.path}: expected {found}") from None


def _loaded(study: Any) -> Loaded:
    if isinstance(study, Study):
        return loaded_as(study)
    if isinstance(study, str | Path):
        return load(str(study))
    raise UserError(f"study: expected a hopscope.Study or the name of one, found {type(study).__name__}")
