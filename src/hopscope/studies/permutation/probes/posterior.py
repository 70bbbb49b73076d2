"""Which of two ideal observers a member resembles: one that knows only that mappings are permutations, or one that
also knows which of them were training mappings.

The first is uniform over the unused values, the second is tilted towards values that more training mappings give.
Held-out mappings are the complement of the training ones, so whatever a member knows of the second pushes it below
chance on them; that makes the published accuracies of 9.56 % at step 1 and 42.26 % at step 4 (presentation,
section 6) a matter of measurement.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope import rng
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes.predictions import (
    Probabilities,
    accuracy_by_slot,
    answers,
    as_json,
    cross_entropy,
    kl_divergence,
    posterior_error,
    predict,
    refuse_repeats,
    uniform_posterior,
    used_mass,
    used_values,
)
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask
from hopscope.theory.posteriors import elimination_floor, training_floor

MOST_MAPPINGS = math.factorial(6)
"""Above so many training mappings (V ≥ 7 at the usual shares) the posterior under them is not worked out."""

SPLITS = ("train", "held_out")

_FITS = 1 << 22
"""Largest table of sequences × mappings that is held at once: bounds memory to some 50 MB, not results."""


class TrainingPosterior(NamedTuple):
    """What the ideal observer predicts that holds exactly the training mappings for possible, all equally likely.

    Attributes:
        probabilities: of every value at every slot (index = value, index 0 has no mass); NaN where not defined.
        defined: whether any training mapping fits the pairs before the slot; where none does, this observer knows
            nothing.
    """

    probabilities: Float[Tensor, "member batch slot output"]
    defined: Bool[Tensor, "member batch slot"]


def training_mappings(task: PermutationTask) -> Int[Tensor, "mapping value"]:
    """All training mappings of a task, as images of 1…V."""
    return task.split.mapping(torch.arange(task.split.count("train"), device=task.device), "train")


def training_posterior(batch: Batch, mappings: Int[Tensor, "mapping value"]) -> TrainingPosterior:
    """The posterior under a uniform prior over the given mappings.

    Args:
        batch: sequences, with repeats or without.
        mappings: images of 1…V (1…V each).

    Raises:
        ValueError: the mappings have another number of values than the sequences.
    """
    values = batch.inputs.shape[-1] // 2 + 1
    if mappings.shape[1] != values:
        raise ValueError(
            f"training posterior: expected mappings of {values} values, found {mappings.shape[1]}"
        )
    images = mappings.T.to(torch.int8).contiguous()  # read for every pair of every sequence
    given = torch.nn.functional.one_hot(mappings, values + 1).float()
    size = max(1, _FITS // max(1, len(mappings) * batch.inputs.shape[0]))
    counts = torch.cat([_counts(part, images, given) for part in batch.pieces(size)], 1)
    fitting = counts.sum(-1)
    return TrainingPosterior(counts / fitting[..., None], fitting > 0)


def _counts(
    batch: Batch, images: Int[Tensor, "value mapping"], given: Float[Tensor, "mapping value output"]
) -> Float[Tensor, "member batch slot output"]:
    """How many of the mappings that fit each prefix give each value to the x that is asked."""
    xs, ys = batch.inputs[..., ::2] - 1, answers(batch)
    fits = torch.ones(*xs.shape[:2], images.shape[1], dtype=torch.bool, device=xs.device)
    counts = []
    for slot in range(xs.shape[-1]):
        asked = xs[..., slot]
        # Counts of every x at once: one matrix product is faster than looking up what each mapping gives.
        of_every_x = (fits.float() @ given.flatten(1)).unflatten(-1, given.shape[1:])
        rows = asked[..., None, None].expand(-1, -1, 1, given.shape[2])
        counts.append(of_every_x.gather(2, rows)[:, :, 0])
        fits &= images[asked] == ys[..., slot, None]
    return torch.stack(counts, 2)


# Tilt.


TILTS = ("tilt_correlation", "tilt_correlation_by_step", "tilt_slope", "tilt_control")


def tilt(
    predicted: Probabilities, batch: Batch, training: TrainingPosterior, seed: int
) -> dict[str, Float[Tensor, " member *slot"]]:
    """Compare how members lean with how the training mappings lean, where several values are left (claim P7).

    A tilt is a probability less that of an even choice among the unused values.  Points are (sequence, unused value)
    at the slots 1…V - 1 where the training posterior is defined.

    Args:
        predicted: probabilities of the members.
        batch: the sequences, the same ones for all members (`member == 1`).
        training: the posterior under the training mappings on them.
        seed: of the control.

    Returns:
        `[member]`, by step `[member, slot]`; NaN where a tilt does not vary by more than rounding: a member without
        tilt has a slope, but no correlation.  The tilt under all V! mappings is zero, so nothing correlates with it.

        * `tilt_correlation`: Pearson correlation of the member's tilt with that of the training posterior, over all
          slots; `tilt_correlation_by_step`: in each slot, NaN at the last one.
        * `tilt_slope`: of the regression of the member's tilt on that of the training posterior: 1 for an observer that
          knows the training mappings, 0 for one that does not.
        * `tilt_control`: the correlation after the training tilts were handed to other sequences, candidate by
          candidate in ascending order.  About 0, whatever the member does.  It is no measure of chance: sequences that
          begin alike repeat a point, so correlations of members without knowledge scatter more widely than it does.

    Raises:
        ValueError: a sequence has a repeated x, or members have different sequences.
    """
    refuse_repeats("tilt", batch)
    if batch.inputs.shape[0] != 1:
        raise ValueError(
            f"tilt: expected the same sequences for all members, found {batch.inputs.shape[0]} sets of them"
        )
    ours, theirs, shuffled = [], [], []
    for slot in range(predicted.shape[2] - 1):
        own, reference = _tilts(predicted, batch, training, slot)
        ours.append(own.flatten(1))
        theirs.append(reference.flatten())
        shuffled.append(reference[_shuffle(len(reference), seed, slot, reference.device)].flatten())
    pooled = torch.cat(ours, 1)
    correlation, slope = _regression(pooled, torch.cat(theirs))
    by_slot = [_regression(own, reference)[0] for own, reference in zip(ours, theirs, strict=True)]
    by_step = torch.stack([*by_slot, torch.full_like(correlation, torch.nan)], 1)
    control = _regression(pooled, torch.cat(shuffled))[0]
    return dict(zip(TILTS, (correlation, by_step, slope, control), strict=True))


def _tilts(
    predicted: Probabilities, batch: Batch, training: TrainingPosterior, slot: int
) -> tuple[Float[Tensor, "member sequence candidate"], Float[Tensor, "sequence candidate"]]:
    """Tilts of members and of the training posterior, over the unused values of a slot in ascending order."""
    defined = training.defined[0, :, slot]
    unused = ~used_values(batch)[0, defined, slot]
    unused[:, 0] = False
    count = predicted.shape[2] - slot
    candidates = unused.nonzero()[:, 1].reshape(-1, count)
    ours = predicted[:, defined, slot].gather(-1, candidates.expand(predicted.shape[0], -1, -1))
    theirs = training.probabilities[0, defined, slot].gather(-1, candidates)
    # Subtracted before it is widened: then a choice that is even in float32 has no tilt at all.
    return (ours - 1 / count).double(), (theirs - 1 / count).double()


def _shuffle(count: int, seed: int, slot: int, device: torch.device) -> Int[Tensor, " count"]:
    """A fixed random order of the sequences of a slot."""
    keys = rng.bits(seed, "probe", slot, torch.arange(count, device=device))[:, 0]
    return keys.argsort(stable=True)


def _regression(
    y: Float[Tensor, "member point"], x: Float[Tensor, " point"]
) -> tuple[Float[Tensor, " member"], Float[Tensor, " member"]]:
    """Pearson correlation of y and x, and slope of y on x; NaN where what they divide by is no more than rounding."""
    least = torch.finfo(torch.float32).eps  # predictions and posteriors are float32
    x, y = x - x.mean(), y - y.mean(1, keepdim=True)
    covariance = (x * y).mean(1)
    spread_x, spread_y = (
        torch.where(spread > least, spread, torch.nan)
        for spread in (x.square().mean().sqrt(), y.square().mean(1).sqrt())
    )
    return covariance / (spread_x * spread_y), covariance / spread_x.square()


# Everything of a unit.


def memorised_share(loss: Float[Tensor, " member"], values: int, mappings: int) -> Float[Tensor, " member"]:
    """How far a loss on training mappings has come from the uniform observer's floor to the training observer's.

    Args:
        loss: mean cross-entropy in nats over the V answers of the training mappings' sequences, without repeats.
        values: V.
        mappings: number of training mappings.

    Returns:
        (ln(V!)/V - loss) / (ln(V!)/V - ln(mappings)/V): 1 for the observer that knows which mappings are training
        ones, 0 for the one that knows permutations only, below 0 for worse ones (claim P11).
    """
    uniform, training = elimination_floor(values), training_floor(values, mappings)
    return (uniform - loss.double()) / (uniform - training)


def measure_posteriors(model: Transformer, task: PermutationTask, limit: int) -> dict[str, Any]:
    """Compare all members with both ideal observers, on sequences without a repeat.

    Where there are more than `MOST_MAPPINGS` training mappings, all that needs the posterior under them is None.

    Args:
        model: the members.
        task: what they learned; its split says which mappings are training ones.
        limit: largest evaluation set that is gone through in full.

    Returns:
        JSON values.  Lists are over members in the unit's order; `[member][step]` where a step is named, with step 1
        first and None where there is nothing to measure; what does not depend on members is a number or a dict.

        * `sequences`, `exhaustive`: of `train` and `held_out`: number of sequences; whether these are all.
        * `training_mappings`: their number; `uniform_floor`, `training_floor`: losses of the two observers, in nats.
        * `kl_R_S`, `mae_R_S`, `max_ae_R_S` `[member][step]`: KL(R ‖ member) in nats, mean and largest absolute error
          against R, where R is the observer `uniform` or `training` and S the mappings, `train` or `held_out`.
          Only where R is defined: `training` on `held_out` has None at the last step.
        * `undefined_share`: of `train` and `held_out`, a list by step (or None): share of prefixes that no training
          mapping fits.
        * `used_mass_mean`, `used_mass_largest` `[member][step]`: probability of the values used (held-out mappings):
          mean, and largest over all sequences.
        * `tilt_correlation`, `tilt_slope`, `tilt_control` `[member]` and `tilt_correlation_by_step`
          `[member][step]`: see `tilt` (held-out mappings).
        * `accuracy_train_by_step`, `accuracy_held_out_by_step`, `train_minus_held_out_by_step` `[member][step]`;
          `train_minus_held_out` `[member]`: mean over the steps 1…V - 1.
        * `train_loss_exhaustive`, `held_out_loss` `[member]`: cross-entropy in nats (`exhaustive` says whether over
          all sequences); `memorised_share` `[member]`: see `memorised_share`.
    """
    values, count = task.config.values, task.split.count("train")
    mappings = training_mappings(task) if count <= MOST_MAPPINGS else None
    record: dict[str, Any] = {
        "exhaustive": {split: task.evaluation_count("plain", split) <= limit for split in SPLITS},
        "training_mappings": count,
        "uniform_floor": elimination_floor(values),
        "training_floor": training_floor(values, count),
    }
    sequences, undefined, accuracy, loss = {}, {}, {}, {}
    for split in SPLITS:
        batch = task.evaluation("plain", split, limit=limit)
        predicted = predict(model, batch)
        training = None if mappings is None else training_posterior(batch, mappings)
        sequences[split] = batch.inputs.shape[1]
        undefined[split] = None if training is None else (~training.defined[0]).double().mean(0)
        accuracy[split], loss[split] = accuracy_by_slot(predicted, batch), cross_entropy(predicted, batch)
        # The uniform observer knows something everywhere.
        record |= _distances(f"uniform_{split}", predicted, (uniform_posterior(batch), None))
        record |= _distances(f"training_{split}", predicted, training)
        if split == "held_out":
            used = used_mass(predicted, batch)
            record |= {"used_mass_mean": used.mean, "used_mass_largest": used.largest}
            record |= (
                dict.fromkeys(TILTS)
                if training is None
                else tilt(predicted, batch, training, task.config.split_seed)
            )
    gap = accuracy["train"] - accuracy["held_out"]
    found = record | {
        "sequences": sequences,
        "undefined_share": undefined,
        "accuracy_train_by_step": accuracy["train"],
        "accuracy_held_out_by_step": accuracy["held_out"],
        "train_minus_held_out_by_step": gap,
        "train_minus_held_out": gap[:, :-1].mean(1),
        "train_loss_exhaustive": loss["train"],
        "held_out_loss": loss["held_out"],
        "memorised_share": memorised_share(loss["train"], values, count),
    }
    return dict(as_json(found))


def _distances(
    name: str, predicted: Probabilities, observer: tuple[Tensor, Tensor | None] | None
) -> dict[str, Tensor | None]:
    """Distances from an observer, given by its posterior and where that is defined."""
    keys = f"kl_{name}", f"mae_{name}", f"max_ae_{name}"
    if observer is None:
        return dict.fromkeys(keys)
    posterior, defined = observer
    error = posterior_error(predicted, posterior, defined)
    return dict(zip(keys, (kl_divergence(posterior, predicted, defined), *error), strict=True))
