"""Probes of the permutation-lookup task: accuracy, recall against elimination, distance from the Bayesian posterior.

All of them take *predictions* (probabilities), so that they can be checked against hand-made ones.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.probes.retrieval import json_numbers
from hopscope.tasks.batch import Batch
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

CHUNK = 4096
"""Sequences per forward pass of an evaluation: bounds memory, not results."""

SAMPLED_PROBES = 1_500
"""Repeats among the 5,000 test sequences that the presentation measures, at 30 % (section 9)."""

Probabilities = Float[Tensor, "member batch slot output"]


def predict(model: Transformer, batch: Batch, chunk: int = CHUNK) -> Probabilities:
    """Each member's probabilities of every token (index = value; index 0 is no value) at the V answers."""
    with torch.no_grad():
        parts = [model(part.inputs).softmax(-1) for part in batch.pieces(chunk)]
    return torch.cat(parts, dim=1)


def with_repeats(task: PermutationTask, slots: tuple[int, ...] = ()) -> PermutationTask:
    """The same mappings, split as they are, with repeats at some slots (the last) of every slot before them."""
    changed = {**task.config.model_dump(), "repeat_slots": slots, "repeat_sources": ()}
    return PermutationTask(PermutationConfig.model_validate(changed), task.device)


def as_json(value: Any) -> Any:
    """Nested dictionaries of tensors as JSON values, see `json_numbers`."""
    if isinstance(value, dict):
        return {name: as_json(entry) for name, entry in value.items()}
    return json_numbers(value) if isinstance(value, Tensor) else value


def answers(batch: Batch) -> Int[Tensor, "member batch slot"]:
    """The right value of every slot."""
    return batch.targets


def used_values(batch: Batch) -> Bool[Tensor, "member batch slot output"]:
    """Values that were shown before each slot (index = value)."""
    slots = batch.inputs.shape[-1] // 2 + 1
    shown = torch.nn.functional.one_hot(batch.inputs[..., 1::2], slots + 1).cumsum(-2) > 0
    return torch.cat((torch.zeros_like(shown[..., :1, :]), shown), dim=-2)


def uniform_posterior(batch: Batch) -> Probabilities:
    """The ideal observer that holds all V! mappings equally likely.

    The value seen beside an earlier copy of x, if there is one; else uniform over the values not shown yet.  Index 0
    has no mass.
    """
    used = used_values(batch)
    free = ~used
    free[..., 0] = False
    eliminated = free / free.sum(-1, keepdim=True).clamp(min=1)
    recalled = torch.nn.functional.one_hot(answers(batch), used.shape[-1]).float()
    repeated = batch.roles["repeat"][..., ::2].bool()
    return torch.where(repeated[..., None], recalled, eliminated)


class Extent(NamedTuple):
    """Mean of a quantity over sequences, and the largest value that any of them has, slot by slot."""

    mean: Float[Tensor, "member slot"]
    largest: Float[Tensor, "member slot"]


def posterior_error(
    predicted: Probabilities,
    posterior: Float[Tensor, "#member batch slot output"],
    defined: Bool[Tensor, "#member batch slot"] | None = None,
) -> Extent:
    """Absolute error against a posterior, over sequences and the values 1…V (presentation, sections 6 and 9).

    Args:
        predicted: probabilities of the members.
        posterior: what they should be.
        defined: where there is such a posterior (default: everywhere); other predictions are left out.

    Returns:
        NaN at slots where the posterior is defined in no sequence.
    """
    error = (predicted - posterior)[..., 1:].abs()
    if defined is None:
        return Extent(error.mean((1, 3)), error.amax((1, 3)))
    largest = torch.where(defined, error.amax(-1), 0.0).amax(1)
    return Extent(_mean_where(defined, error.mean(-1)), torch.where(defined.any(1), largest, torch.nan))


def kl_divergence(
    reference: Float[Tensor, "#member batch slot output"],
    predicted: Probabilities,
    defined: Bool[Tensor, "#member batch slot"] | None = None,
) -> Float[Tensor, "member slot"]:
    """Mean over sequences of KL(reference ‖ predicted) = Σ_y r(y)·(ln r(y) − ln p(y)), in nats, with 0·ln 0 = 0.

    Args:
        reference: probabilities of an ideal observer.
        predicted: probabilities of the members.
        defined: where there is such a reference (default: everywhere); other predictions are left out.

    Returns:
        Float64, by slot; NaN where the reference is defined in no sequence.
    """
    gain = torch.special.xlogy(reference, reference) - reference * _log(predicted)
    divergence = gain.sum(-1).double()
    return divergence.mean(1) if defined is None else _mean_where(defined, divergence)


def _mean_where(
    chosen: Bool[Tensor, "#member batch slot"], values: Float[Tensor, "member batch slot"]
) -> Float[Tensor, "member slot"]:
    """Mean over the chosen sequences of each slot; the others may hold NaN.  NaN where none is chosen."""
    return torch.where(chosen, values, 0.0).sum(1) / chosen.sum(1)


def _log(probabilities: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    # The smallest normal number: workers flush smaller ones to zero, and the logarithm of zero is no loss.
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


def used_mass(predicted: Probabilities, batch: Batch) -> Extent:
    """Probability of all values together that were shown already and that elimination rules out (claim P6).

    Raises:
        ValueError: a sequence has a repeated x, where a used value is the right one.
    """
    refuse_repeats("used mass", batch)
    mass = (predicted * used_values(batch)).sum(-1).double()
    return Extent(mass.mean(1), mass.amax(1))


def refuse_repeats(measurement: str, batch: Batch) -> None:
    """Let only sequences pass in which every x is another one.

    Raises:
        ValueError: a sequence has a repeated x.
    """
    repeats = int(batch.roles["repeat"].any(-1).sum())
    if repeats:
        raise ValueError(f"{measurement}: expected sequences without a repeated x, found {repeats} with one")


def accuracy_by_slot(predicted: Probabilities, batch: Batch) -> Float[Tensor, "member slot"]:
    """Share of sequences whose most probable token is the right value."""
    return (predicted.argmax(-1) == answers(batch)).double().mean(1)


def cross_entropy(predicted: Probabilities, batch: Batch) -> Float[Tensor, " member"]:
    """Mean over all answers of −ln P(right value), in nats."""
    right = answers(batch).expand(predicted.shape[:-1])[..., None]
    return -_log(predicted.gather(-1, right)).mean((1, 2, 3))


def repeated_slot(batch: Batch) -> Int[Tensor, "member batch"]:
    """The slot (from 0) of the one repeated x of each sequence.

    Raises:
        ValueError: a sequence has no repeated x, or several.
    """
    repeated = batch.roles["repeat"][..., ::2].bool()
    if not bool((repeated.sum(-1) == 1).all()):
        raise ValueError("repeat probe: expected one repeated x in every sequence, found another number")
    return repeated.int().argmax(-1)


def repeat_probe(predicted: Probabilities, batch: Batch) -> dict[str, Tensor]:
    """Measure recall on sequences that each hold exactly one repeated x (presentation, section 7).

    Returns:
        `[member]`, and `[member, slot]` by slot.

        * `recall`: share of probes whose most probable token is the value seen before; `trapped`: share whose most
          probable token is one of the unused values.
        * `mass_recalled`, `mass_unused`: mean probability of the value seen before, and of the unused values together.
        * `recall_by_slot`: recall by the slot (1…V) that was copied; NaN where no probe copies it.
        * `repeat_mae`, `repeat_max_ae`: mean and largest absolute error over probes and the values 1…V, against
          certainty of the value seen before; `repeat_max_ae_of_sample`: the largest that one expects among
          `SAMPLED_PROBES` of the probes, drawn at random.

    Raises:
        ValueError: a sequence has no repeated x, or several.
    """
    members, slots = predicted.shape[0], predicted.shape[2]
    slot = repeated_slot(batch).expand(members, -1)
    here = predicted.gather(2, slot[..., None, None].expand(-1, -1, 1, slots + 1))[:, :, 0]
    right = answers(batch).expand(members, -1, -1).gather(2, slot[..., None])[..., 0]
    used = used_values(batch).expand(members, -1, -1, -1)
    unused = ~used.gather(2, slot[..., None, None].expand(-1, -1, 1, slots + 1))[:, :, 0]
    unused[..., 0] = False
    error = (here - torch.nn.functional.one_hot(right, slots + 1))[..., 1:].abs()
    best = here.argmax(-1)
    hit = (best == right).double()  # a share must not be rounded across a threshold
    source = batch.relations["same_symbol"].amax(-1).expand(members, -1) // 2
    by_source = [
        torch.where(source == s, hit, 0.0).sum(1) / (source == s).sum(1) for s in range(slots)
    ]  # 0 / 0 is NaN, which says that no probe copies this slot
    return {
        "recall": hit.mean(1),
        "trapped": unused.gather(-1, best[..., None])[..., 0].double().mean(1),
        "mass_recalled": here.gather(-1, right[..., None])[..., 0].mean(1),
        "mass_unused": (here * unused).sum(-1).mean(1),
        "recall_by_slot": torch.stack(by_source, 1),
        "repeat_mae": error.mean((1, 2)),
        "repeat_max_ae": error.amax((1, 2)),
        "repeat_max_ae_of_sample": expected_maximum(error.amax(2), SAMPLED_PROBES),
    }


def expected_maximum(values: Float[Tensor, "member probe"], sample: int) -> Float[Tensor, " member"]:
    """The expected largest of `sample` values drawn at random without replacement; of all where there are no more.

    The largest of n of N ordered values is the i-th with probability C(i - 1, n - 1) / C(N, n).
    """
    count = values.shape[1]
    if sample >= count:
        return values.amax(1).double()
    ranks = torch.arange(sample, count + 1, dtype=torch.float64, device=values.device)
    # C(i - 1, n - 1) without what is the same for every rank: the weights are made to add up to 1.
    logarithms = torch.lgamma(ranks) - torch.lgamma(ranks - sample + 1)
    weights = (logarithms - logarithms[-1]).exp()
    return values.double().sort(1).values[:, sample - 1 :] @ (weights / weights.sum())


def mean_patterns(model: Transformer, batch: Batch) -> Float[Tensor, "member layer head query key"]:
    """Mean attention pattern of every head over the batch."""
    total: Tensor | None = None
    with torch.no_grad():
        for part in batch.pieces(CHUNK):
            _, captured = model.capture(part.inputs)
            summed = torch.stack([pattern.sum(1) for pattern in captured.patterns], 1)
            total = summed if total is None else total + summed
    if total is None:
        raise ValueError("mean patterns: expected at least one sample, found none")
    return total / batch.inputs.shape[1]
