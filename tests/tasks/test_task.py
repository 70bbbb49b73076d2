import re
import subprocess
import sys

import pytest
from pydantic import ValidationError

from hopscope import tasks
from hopscope.config import validation_line
from hopscope.tasks.config import EquationsConfig, PermutationConfig, TaskReference
from hopscope.tasks.task import Shape, Task, role_words, token_words
from hopscope.training.config import TrainJob


def shape(**changes):
    fields = {"inputs": "tokens", "input_size": 7, "positions": 5, "readout": (2, 4), "output_size": 3}
    return Shape(**fields | changes)


def test_outputs_are_like_inputs_unless_said():
    assert shape().outputs == "classes"
    assert shape(inputs="vectors").outputs == "vectors"
    assert shape(inputs="vectors", outputs="classes").outputs == "classes"
    assert Shape.model_validate(shape().model_dump(mode="json")) == shape()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"readout": (5,)}, r"readout: expected ascending positions from 0 to 4, found \(5,\)"),
        ({"readout": (4, 2)}, "readout: expected ascending"),
        ({"readout": ()}, "readout: expected Tuple should have at least 1 item"),
        ({"position_size": 2}, "position_size: expected 0, or with inputs 'vectors'"),
        ({"inputs": "vectors", "position_size": 7}, "less than input_size = 7"),
        ({"inputs": "images"}, "inputs: expected 'tokens' or 'vectors'"),
        ({"input_size": 0}, "input_size"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_one_line(changes, message):
    with pytest.raises(ValidationError) as refused:
        shape(**changes)
    line = validation_line(refused.value)
    assert re.search(message, line) and "\n" not in line


class Plain(Task):
    """Nothing but a field."""

    values: int = 3


def test_a_task_is_a_frozen_configuration():
    task = Plain(values=5)
    with pytest.raises(ValidationError, match="frozen"):
        task.values = 7
    with pytest.raises(ValidationError, match="extra"):
        Plain(colour="red")
    assert task.model_dump(mode="json") == {"values": 5}
    assert task.floors() == {} and task.cases("held-out") is None and task.reference(None) is None
    assert role_words(task) == {} and token_words(task)(2) == "2"


def test_what_is_missing_is_said():
    with pytest.raises(NotImplementedError, match=r"Plain: expected a method shape\(self\) -> hs.Shape"):
        Plain().shape()
    with pytest.raises(NotImplementedError, match=r"Plain: expected a method sample\(self, draws\)"):
        Plain().sample(None)


def test_words_may_be_a_property_or_a_method():
    class Property(Plain):
        @property
        def words(self):
            return {"roles": {"kind": ["x", "y"]}, "token": "abc".__getitem__}

    class Method(Plain):
        def words(self):
            return {"roles": {"kind": ["x", "y"]}, "token": "abc".__getitem__}

    for kind in (Property, Method):
        assert role_words(kind()) == {"kind": ("x", "y")} and token_words(kind())(1) == "b"


def test_a_gradient_belongs_to_the_loss_that_it_was_written_for():
    class Parts(Plain):
        def parts(self, predictions, batch):
            return {}

    class Both(Parts):
        def loss_gradient(self, predictions, batch):
            return predictions

    assert Plain().differentiable_without_autograd and Both().differentiable_without_autograd
    assert not Parts().differentiable_without_autograd


def test_the_tasks_of_the_package_load_without_torch():
    code = (
        "import sys, hopscope.tasks as tasks\n"
        "assert 'hopscope.tasks.task' not in sys.modules\n"
        "for kind in (tasks.Permutation, tasks.Retrieval, tasks.Conditional, tasks.Equations):\n"
        "    task = kind(); task.shape(); task.floors(); task.words\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tasks.Permutation is PermutationConfig and "Retrieval" in dir(tasks)
    with pytest.raises(AttributeError, match="no attribute 'Sorting'"):
        _ = tasks.Sorting


def job(task):
    model = {"length": 5, "input_size": 7, "output_size": 3}
    members = [{"member": 0, "seed": 0}]
    fields = {"label": "a", "task": task, "model": model, "training": {"steps": 3}, "members": members}
    return TrainJob.model_validate(fields)


def test_a_job_holds_a_task_of_the_package_or_a_reference_to_another():
    reference = TaskReference(reference="copying.py:Copy", fields={"back": 3}, source="0a", shape=shape())
    for task in (reference, EquationsConfig(chains=3)):
        given = job(task)
        again = TrainJob.model_validate(given.model_dump(mode="json"))
        assert again == given and type(again.task) is type(task)
    assert reference.model_dump(mode="json")["kind"] == "declared"
    with pytest.raises(ValidationError, match="declared"):
        job({"kind": "sorting"})


def test_examples_stand_in_the_record_only_where_they_are_given():
    given = job(EquationsConfig(chains=3))
    assert "examples" not in given.model_dump(mode="json")["training"]
    pool = given.model_copy(update={"training": given.training.model_copy(update={"examples": 31})})
    assert pool.model_dump(mode="json")["training"]["examples"] == 31
    assert TrainJob.model_validate(pool.model_dump(mode="json")) == pool
