"""A member of a collection as a plain module that knows its task."""

from pathlib import Path

from hopscope.collection.index import CollectedMember, check_files, row_of
from hopscope.errors import UserError
from hopscope.models.export import load_module
from hopscope.models.member import MemberTransformer
from hopscope.sources import source_hash
from hopscope.studies import find_study
from hopscope.tasks.config import TaskConfig, TaskReference
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.task import Task


def open_member(folder: Path | str) -> MemberTransformer:
    """One member of a collection, in float32 and ready for evaluation; `member.batch(64)` draws held-out samples.

    Args:
        folder: of the member, within the collection.

    Raises:
        UserError: the collection does not list it, or one of its files is missing or altered.
    """
    path = Path(folder)
    row = row_of(path)
    check_files(path, row)
    return load_module(path).with_task(lambda: task_of_row(row), row=0, seed=row.data_seed)


def task_of_row(row: CollectedMember) -> TaskOnDevice:
    """The task that a member was trained on, on the CPU.

    Raises:
        UserError: the task of its study is not installed, or is another one today.
    """
    task = declared(row.task, row.study)
    found = source_of(row.task, task)
    if found != row.task_source:
        expected, given = (source[:12] if source else "none" for source in (row.task_source, found))
        raise UserError(
            f"{row.name}: expected the task that it was trained on (source {expected}), found another "
            f"(source {given}); take the version of Hopscope that the collection was made with"
        )
    return TaskOnDevice(task, "cpu", row.training.examples)


def declared(task: TaskConfig, study: str) -> Task:
    """A task as its author wrote it: a built-in one as it is recorded, another one by the class of a study.

    Raises:
        UserError: there is no such study here, or its task is another one.
    """
    if not isinstance(task, TaskReference):
        return task
    own = find_study(study).study.task
    if own is None or type(own).__name__ != task.reference:
        found = "none" if own is None else type(own).__name__
        raise UserError(f"{study}: expected a study of the task {task.reference}, found {found}")
    return type(own).model_validate(task.fields)


def source_of(recorded: TaskConfig, task: Task) -> str | None:
    """Hash of the source of a task that is no built-in one."""
    return source_hash(type(task)) if isinstance(recorded, TaskReference) else None
