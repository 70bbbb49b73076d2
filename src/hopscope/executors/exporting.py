"""One trained member as a folder that others can open, with a model card written from the run's record."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, cast

from hopscope import __version__
from hopscope.errors import UserError
from hopscope.figures.selection import floors_of
from hopscope.language import gpt2_folder
from hopscope.models.export import CONFIG, WEIGHTS, export_module, is_export
from hopscope.report.model_card import CardFacts, model_card
from hopscope.runs import RunFolder
from hopscope.runs.files import remove, write_atomic
from hopscope.studies import units
from hopscope.studies.program import Program
from hopscope.studies.reproducing import as_call, differing_fields
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.task import Task
from hopscope.training.config import TrainJob, job_of
from hopscope.training.restore import load_member, member_record

Layout = Literal["auto", "gpt2", "hopscope"]
LAYOUTS: Final = ("auto", "gpt2", "hopscope")

CARD = "README.md"
_TOKENIZER = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")
_OURS = (CARD, *_TOKENIZER, WEIGHTS, CONFIG, gpt2_folder.ORIGIN)
"""Files of an export, of whatever layout; those last by which it is known for one."""


def export_member(
    run: RunFolder,
    member: int,
    to: Path,
    step: int | None = None,
    *,
    layout: Layout = "auto",
    program: Callable[[], Program],
    command: Callable[[Program, Mapping[str, Any]], str] = lambda program, fields: "",
) -> None:
    """Write a member as a folder with `config.json`, `model.safetensors` and a model card.

    Args:
        run: the run.
        member: number of the member in the run.
        to: folder; made if absent, and an earlier export in it is replaced.
        step: of the checkpoint; the last by default.
        layout: `gpt2`, which transformers opens; `hopscope`, our own; `auto`: the first where the model fits into it.
        program: finds the run's study; without it the card lacks the task's floors and the command.
        command: gives the command line that makes the run again, from its study and the fields that differ.

    Raises:
        UserError: no such member or checkpoint; the layout does not fit; or the folder holds something else.
    """
    if layout not in LAYOUTS:
        raise UserError(f"layout: expected one of {', '.join(LAYOUTS)}, found {layout!r}")
    record = member_record(run, member)
    unit = run.unit(record.unit)
    step = unit.checkpoint(step)[0]
    module = load_member(run, member, step)
    job = job_of(unit)
    finite = all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values())
    reason = gpt2_folder.why_not(module) if finite else "some of its weights are not finite"
    if layout == "gpt2" and reason:
        raise UserError(f"layout: {reason}; export it with the layout hopscope")
    chosen: Literal["gpt2", "hopscope"] = "hopscope" if layout == "hopscope" or reason else "gpt2"
    vocabulary = _vocabulary(job) if chosen == "gpt2" else ()
    found = _found(run, job, program, command)
    facts = CardFacts(
        layout=chosen,
        why_not=reason if layout == "auto" else "",
        tokenizer=bool(vocabulary),
        weights=sum(tensor.numel() for tensor in module.state_dict().values()),
        finite=finite,
        version=__version__,
        **found,
    )
    card = model_card(run, member, step, facts)
    origin = {
        "study": run.study,
        "run": run.hash,
        "member": record.member,
        "seed": record.seed,
        "step": step,
        "overrides": record.overrides,
    }
    _clear(to, chosen)
    if chosen == "gpt2":
        gpt2_folder.write_folder(module, vocabulary, to, origin, exact=True)
    else:
        export_module(module, to, origin)
    write_atomic(to / CARD, card)


def _clear(to: Path, layout: str) -> None:
    """Remove what an earlier export would leave beside the new one.

    Raises:
        UserError: the earlier one has another layout, and other files stand beside it.
    """
    if not to.is_dir():
        return
    ours = is_export(to)
    if ours == (layout == "hopscope") or not (ours or (to / gpt2_folder.ORIGIN).is_file()):
        stale = [CARD, *_TOKENIZER] if (to / gpt2_folder.ORIGIN).is_file() else [CARD] if ours else []
    else:
        foreign = sorted(path.name for path in to.iterdir() if path.name not in _OURS)
        if foreign:
            raise UserError(
                f"{to}: expected nothing but an earlier export, which has another layout, found {', '.join(foreign)} "
                "too; choose another --to"
            )
        stale = list(_OURS)
    for name in stale:
        remove(to / name)


def _vocabulary(job: TrainJob) -> tuple[str, ...]:
    """Words of a task of text by their tokens; none of other tasks, whose tokens are numbers."""
    if not isinstance(job.task, EquationsConfig):
        return ()
    from hopscope.tasks.equations import EquationsTask

    return tuple(EquationsTask(job.task).vocabulary)


def _found(
    run: RunFolder,
    job: TrainJob,
    program: Callable[[], Program],
    command: Callable[[Program, Mapping[str, Any]], str],
) -> dict[str, Any]:
    """What the study says for the card: all of it, or as much as is there without the study's file."""
    study: Program | None = None
    fields: Mapping[str, Any] | None = None
    with suppress(UserError):  # the study's file may be gone or have changed: the card says less
        study = program()
        fields = differing_fields(study, run)
    found: dict[str, Any] = {"task": (getattr(job.task, "reference", None) or type(job.task).__name__, "")}
    with suppress(UserError):
        task = cast(Task, job.task) if study is None else study.declared_task(job)
        floors = units.floors_of(task)
        words = (type(task).__doc__ or "").strip().partition("\n\n")[0]
        found["task"] = (found["task"][0], words)
        found["floors"] = lambda metric: floors_of(floors, metric, job.label)
    if study is not None:
        found["question"] = study.study.question
    if study is not None and fields is not None:
        # Where the study's file is on this machine is nothing for a card that others read.
        file = None if study.built_in else study.file
        found["python"] = as_call(study.name if file is None else file.name, run.preset, fields)
        found["command"] = command(study, fields)
    return found
