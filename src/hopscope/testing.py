"""The contract of a task, for the tests of whoever writes one: `hopscope.testing.check_task(MyTask())`.

What holds of every task that passes: a sample is a function of its address alone, its batches have the shape that it
declares, and its losses are means that the trainer can minimise.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor

from hopscope.errors import HopscopeError
from hopscope.tasks.batch import NO_RELATION, Batch
from hopscope.tasks.checks import BatchCheck
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.draws import Draws
from hopscope.tasks.losses import counted
from hopscope.tasks.plain_draws import PlainDraws
from hopscope.tasks.task import Shape, Task, Use, role_words, token_words

SEEDS: Final = (19, 23)
"""Data seeds of the members that are compared."""

BATCH, STEP = 17, 29
EXAMPLES = 5
REFERENCES = 7
"""Samples of each member that are held to the reference."""

_USES: tuple[Use, ...] = get_args(Use)
_R = TypeVar("_R")


class _Checked(NamedTuple):
    """A task under test, and a batch of it."""

    task: Task
    name: str
    shape: Shape
    batch: Batch


def check_task(task: Task) -> None:
    """Check everything that the trainer, the measures and the pages expect of a task.

    Raises:
        AssertionError: one line that says what is wrong.
        UserError: likewise, where training would say the same.
    """
    name = type(task).__name__
    assert isinstance(task, Task), (
        f"{name}: expected a subclass of hs.Task, found {type(task).__mro__[1].__name__}"
    )
    shape = _called(f"{name}.shape", task.shape)
    assert isinstance(shape, Shape), f"{name}.shape: expected an hs.Shape, found {type(shape).__name__}"
    for use in _USES:
        draws = Draws.of(_seeds(), use, STEP, BATCH)
        drawn = _called(f"{name}.sample", task.sample, draws)
        BatchCheck(f"{name}.sample", shape, draws.size, draws.device)(drawn)
    checked = _Checked(task, name, shape, _sample(task, "train", STEP))
    for check in (
        _check_annotations, _check_addresses, _check_pieces, _check_variety, _check_examples, _check_losses,
        _check_gradient, _check_floors, _check_cases, _check_words, _check_reference,
    ):  # fmt: skip
        check(checked)


# Samples.


def _check_annotations(checked: _Checked) -> None:
    """Groups, roles and relations are of the right shape, in range, and the same ones whatever samples are for."""
    _check_named(checked, checked.batch, "sample")
    for use in _USES[1:]:
        other = _sample(checked.task, use, STEP)
        _check_named(checked, other, f"sample for {use!r}")
        _check_same_names(checked, other, f"sample for {use!r}")


def _check_same_names(checked: _Checked, other: Batch, what: str) -> None:
    for kind in ("groups", "roles", "relations"):
        expected, found = sorted(getattr(checked.batch, kind)), sorted(getattr(other, kind))
        assert expected == found, (
            f"{checked.name}.{what}: {kind}: expected {expected} as in training, found {found}"
        )


def _check_named(checked: _Checked, batch: Batch, what: str) -> None:
    shape, words = checked.shape, role_words(checked.task)
    size = tuple(batch.inputs.shape[:2])
    for kind in ("groups", "roles", "relations"):
        for name in getattr(batch, kind):
            where = f"{checked.name}.{what}: {kind}[{name!r}]"
            values = _called(where, getattr(batch, kind).__getitem__, name)
            dtype = torch.bool if kind == "groups" else torch.int64
            expected = size if kind == "groups" else (*size, shape.positions)
            assert isinstance(values, Tensor), f"{where}: expected a tensor, found {type(values).__name__}"
            found = tuple(values.shape)
            assert found == expected, f"{where}: expected shape {list(expected)}, found {list(found)}"
            assert values.dtype == dtype, f"{where}: expected {dtype}, found {values.dtype}"
            if kind == "relations":
                _check_range(where, values, shape.positions - 1, "key positions")
            elif kind == "roles":
                _check_range(where, values, len(words[name]) - 1 if name in words else None, "roles")
    unknown = sorted(set(words) - set(batch.roles))
    assert not unknown, f"{checked.name}.words: expected roles of {sorted(batch.roles)}, found {unknown}"


def _check_range(where: str, values: Tensor, highest: int | None, things: str) -> None:
    lowest, largest = (int(value) for value in values.aminmax())
    below = lowest >= NO_RELATION and (highest is None or largest <= highest)
    until = "" if highest is None else f" to {highest}"
    assert below, f"{where}: expected {things} from {NO_RELATION}{until}, found {lowest} to {largest}"


def _check_addresses(checked: _Checked) -> None:
    """A sample is a function of (data seed, use, step, sample) alone."""
    task, batch, name = checked.task, checked.batch, checked.name
    _assert_same(batch, _sample(task, "train", STEP), f"{name}.sample: the same draws gave other samples")
    again = type(task).model_validate(task.model_dump())
    _assert_same(
        batch, _sample(again, "train", STEP), f"{name}: another task of the same fields gave other samples"
    )
    for member, seed in enumerate(SEEDS):
        alone = _sample(task, "train", STEP, seeds=(seed,))
        _assert_same(
            batch.member(member), alone, f"{name}.sample: a member alone has other samples than among others"
        )


def _check_pieces(checked: _Checked) -> None:
    """A batch may be drawn in pieces, and several steps together."""
    task, batch, name = checked.task, checked.batch, checked.name
    for cut in (1, 5, 13):
        rest = _sample(task, "train", STEP, count=BATCH - cut, start=cut)
        what = (
            f"{name}.sample: samples {cut} to {BATCH - 1} of a batch differ from the same drawn by themselves"
        )
        _assert_same(batch.take(slice(cut, None)), rest, what)
    steps = range(STEP - 1, STEP + 2)
    together = _sample(task, "train", steps)
    for number, step in enumerate(steps):
        part = together.take(slice(number * BATCH, (number + 1) * BATCH))
        what = f"{name}.sample: a step drawn together with others differs from the same step alone"
        _assert_same(part, _sample(task, "train", step), what)


def _check_variety(checked: _Checked) -> None:
    """Samples, seeds, steps and uses differ."""
    task, batch, name = checked.task, checked.batch, checked.name
    first = checked.batch.inputs[0]
    assert len(first.unique(dim=0)) > 1, (
        f"{name}.sample: expected samples that differ, found {BATCH} equal ones"
    )
    others = {
        "members": batch.inputs[1],
        "steps": _sample(task, "train", STEP + 8).inputs[0],
        "training and held-out samples": _sample(task, "held-out", STEP).inputs[0],
        "training samples and those of probes": _sample(task, "probe", STEP).inputs[0],
    }
    for what, inputs in others.items():
        assert not torch.equal(first, inputs), f"{name}.sample: expected {what} that differ, found equal ones"


def _check_examples(checked: _Checked) -> None:
    """In a finite pool there are no more different samples than it has."""
    pool = TaskOnDevice(checked.task, examples=EXAMPLES)
    inputs = pool.sample(_seeds(), "train", STEP, 4 * BATCH).inputs
    found = len(inputs[0].unique(dim=0))
    assert found <= EXAMPLES, (
        f"{checked.name}.sample: expected at most {EXAMPLES} different samples with hs.Training(examples={EXAMPLES}), "
        f"found {found}; draw everything from draws, and address nothing by draws.step or draws.index"
    )


# Losses.


def _check_losses(checked: _Checked) -> None:
    """Parts have one number for each member, and the loss is a mean over a member's samples."""
    name, batch, predictions = checked.name, checked.batch, _predictions(checked.shape)
    parts = _parts(checked, predictions, batch)
    assert "loss" in parts, f"{name}.parts: expected a 'loss' among the parts, found {sorted(parts)}"
    for part, values in parts.items():
        assert isinstance(values, Tensor) and values.shape == (len(SEEDS),), (
            f"{name}.parts: {part!r}: expected shape [{len(SEEDS)}], one number for each member, "
            f"found {list(getattr(values, 'shape', [type(values).__name__]))}"
        )
    assert parts["loss"].isfinite().all(), (
        f"{name}.parts: 'loss': expected finite numbers, found {parts['loss'].tolist()}"
    )
    each = [
        _parts(checked, predictions[:, i : i + 1], batch.take(slice(i, i + 1)))["loss"] for i in range(BATCH)
    ]
    assert _close(parts["loss"], torch.stack(each).mean(0)), (
        f"{name}.parts: 'loss': expected the mean over samples of their losses, so that a batch may be cut, "
        f"found {parts['loss'].tolist()} and {torch.stack(each).mean(0).tolist()}"
    )
    asked_of_all = _parts(checked, predictions, batch.member(0))
    assert _close(asked_of_all["loss"][0], parts["loss"][0]) and len(asked_of_all["loss"]) == len(SEEDS), (
        f"{name}.parts: expected that a batch with a member axis of 1 is asked of every member, "
        f"found 'loss' {asked_of_all['loss'].tolist()}"
    )


def _check_gradient(checked: _Checked) -> None:
    """The loss reaches every readout that counts, of its own member alone, and `loss_gradient` is its derivative."""
    name, batch = checked.name, checked.batch
    predictions = _predictions(checked.shape).requires_grad_()
    losses = _parts(checked, predictions, batch)["loss"]
    assert losses.requires_grad, (
        f"{name}.parts: 'loss': expected a function of the predictions, found a constant"
    )
    (first,) = torch.autograd.grad(losses[0], predictions, retain_graph=True)
    (whole,) = torch.autograd.grad(losses.sum(), predictions)
    assert not first[1:].any(), (
        f"{name}.parts: 'loss': expected each member's own, found that members depend on another"
    )
    reached = whole.abs().sum(-1) > 0.0
    counts = counted(batch).expand(reached.shape)
    assert bool(reached[counts].all()), (
        f"{name}.parts: 'loss': expected that every readout with a weight enters it"
    )
    if checked.task.differentiable_without_autograd:
        given = _called(f"{name}.loss_gradient", checked.task.loss_gradient, predictions.detach(), batch)
        assert given.shape == whole.shape and _close(given, whole), (
            f"{name}.loss_gradient: expected the derivative of the sum of the members' losses "
            f"(largest entry {whole.abs().max():.3g}), found another (largest entry {given.abs().max():.3g})"
        )


def _check_floors(checked: _Checked) -> None:
    """Floors are finite numbers by name, of metrics that there are."""
    where = f"{checked.name}.floors"
    floors = _called(where, checked.task.floors)
    assert isinstance(floors, Mapping), f"{where}: expected a dict, found {type(floors).__name__}"
    on = TaskOnDevice(checked.task)
    metrics = sorted(on.losses(_predictions(checked.shape), checked.batch.plain()))
    for name, floor in floors.items():
        if isinstance(floor, Mapping):
            assert name in metrics, f"{where}: expected metrics of {metrics}, found {name!r}"
        values = floor if isinstance(floor, Mapping) else {name: floor}
        for what, value in values.items():
            finite = isinstance(value, (int, float)) and abs(value) < float("inf")
            assert isinstance(what, str) and finite, (
                f"{where}: expected numbers by name, found {what!r}: {value!r}"
            )


# What is optional.


def _check_cases(checked: _Checked) -> None:
    """Exhaustive sets look like samples."""
    on = TaskOnDevice(checked.task)
    for use in _USES:
        what = f"cases({use!r})"
        cases = _called(f"{checked.name}.{what}", on.cases, use)
        if cases is not None:
            _check_named(checked, cases, what)
            _check_same_names(checked, cases, what)


def _check_words(checked: _Checked) -> None:
    """Words of a role differ, and every token can be written."""
    for role, words in role_words(checked.task).items():
        several = sorted({word for word in words if words.count(word) > 1})
        assert not several, (
            f"{checked.name}.words: roles[{role!r}]: expected words that differ, found {several} twice"
        )
    if checked.shape.inputs == "tokens":
        write = token_words(checked.task)
        for token in range(checked.shape.input_size):
            where = f"{checked.name}.words: token {token}"
            word = _called(where, write, token)
            assert isinstance(word, str), f"{where}: expected a string, found {word!r}"


def _check_reference(checked: _Checked) -> None:
    """Samples are what the reference says, where there is one."""
    for use in _USES:
        batch = _sample(checked.task, use, STEP)
        for member, seed in enumerate(SEEDS):
            for index in range(REFERENCES):
                draws = PlainDraws(seed, use, STEP, index)
                where = f"{checked.name}.reference"
                reference = _called(where, checked.task.reference, draws)
                if reference is None:
                    break
                _check_one_reference(
                    where, _named(reference), _tensors(batch.member(member).take(slice(index, index + 1)))
                )


def _check_one_reference(where: str, reference: Mapping[str, Any], sample: Mapping[str, Tensor]) -> None:
    unknown = sorted(set(reference) - set(sample))
    assert not unknown, f"{where}: expected names of {sorted(sample)}, found {unknown}"
    for name, numbers in reference.items():
        expected, found = torch.as_tensor(numbers).double(), sample[name][0, 0].double()
        if name == "weights" and all(a in (1, b) for a, b in zip(expected.shape, found.shape, strict=False)):
            expected = expected.expand(found.shape) if expected.dim() == found.dim() else expected
        assert expected.shape == found.shape, (
            f"{where}: {name}: expected shape {list(found.shape)} as sample gives it, found {list(expected.shape)}"
        )
        assert torch.allclose(expected, found, rtol=1e-4, atol=1e-5), (
            f"{where}: {name}: expected the same as sample gives, found {_shortly(expected)} beside {_shortly(found)}"
        )


def _named(reference: Any) -> dict[str, Any]:
    """A reference's tensors under flat names, as `_tensors` has them."""
    fields = reference if isinstance(reference, Mapping) else vars(reference)
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("groups", "roles", "relations"):
            flat |= {f"{name}[{key!r}]": each for key, each in value.items()}
        elif value is not None:
            flat[name] = value
    return flat


# Helpers.


def _seeds(seeds: tuple[int, ...] = SEEDS) -> Tensor:
    return torch.tensor(seeds)


def _sample(
    task: Task,
    use: str,
    step: int | range,
    *,
    seeds: tuple[int, ...] = SEEDS,
    count: int = BATCH,
    start: int = 0,
) -> Batch:
    draws = Draws.of(_seeds(seeds), use, step, count, start=start)
    return _called(f"{type(task).__name__}.sample", task.sample, draws)


def _predictions(shape: Shape) -> Tensor:
    size = (len(SEEDS), BATCH, len(shape.readout), shape.output_size)
    return torch.randn(size, generator=torch.Generator().manual_seed(41))


def _parts(checked: _Checked, predictions: Tensor, batch: Batch) -> Mapping[str, Tensor]:
    return _called(f"{checked.name}.parts", checked.task.parts, predictions, batch)


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """All tensors of a batch, by name; weights are given their full size."""
    named = {"inputs": batch.inputs, "targets": batch.targets}
    if batch.weights is not None:
        shape = batch.targets.shape[: batch.weights.dim()]
        named["weights"] = batch.weights.expand(shape)
    for kind in ("groups", "roles", "relations"):
        named |= {f"{kind}[{name!r}]": values for name, values in getattr(batch, kind).items()}
    return named


def _assert_same(expected: Batch, found: Batch, otherwise: str) -> None:
    first, second = _tensors(expected), _tensors(found)
    assert sorted(first) == sorted(second), f"{otherwise} ({sorted(first)} and {sorted(second)})"
    for name, tensor in first.items():
        other = second[name]
        assert tensor.shape == other.shape and _close(tensor, other), f"{otherwise} ({name})"


def _close(first: Tensor, second: Tensor) -> bool:
    if not first.is_floating_point():
        return torch.equal(first, second)
    return torch.allclose(first, second.to(first.dtype), rtol=1e-4, atol=1e-6)


def _shortly(numbers: Tensor) -> str:
    values = numbers.flatten()
    said = ", ".join(f"{float(value):g}" for value in values[:6])
    return f"[{said}{', …' if len(values) > 6 else ''}]"


def _called(where: str, work: Callable[..., _R], *arguments: Any) -> _R:
    """Do it; whatever else it raises becomes one line."""
    try:
        return work(*arguments)
    except (AssertionError, HopscopeError):
        raise
    except Exception as error:
        words = str(error).strip().splitlines() or ["no message"]
        raise AssertionError(f"{where} raised {type(error).__name__}: {words[0]}") from error
