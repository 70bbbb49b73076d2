"""What permutation models answer, and what ideal observers would, as tensors.  Loads torch."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from hopscope import rng
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch

Found = Float[Tensor, "member sample slot output"]
"""Probabilities of every token (index = value; index 0 is no value) at the V answers."""

Observer = Float[Tensor, "1 sample slot output"]
ByMember = Float[Tensor, " member"]

PIECE = 1024
"""Samples of one forward pass: bounds memory, not results."""


def predicted(model: Transformer, batch: Batch) -> Found:
    return torch.cat([model(piece.inputs).softmax(-1) for piece in batch.pieces(PIECE)], 1)


def right(found: Found, batch: Batch) -> Float[Tensor, "member sample slot"]:
    """1 where the most probable token is the right value."""
    return (found.argmax(-1) == batch.targets).double()


def used(batch: Batch) -> Observer:
    """1 for values that were shown before each slot."""
    shown = one_hot(batch.inputs[..., 1::2], batch.targets.shape[-1] + 1).cumsum(-2).clamp(max=1)
    return torch.cat((torch.zeros_like(shown[..., :1, :]), shown), -2).float()


def even(batch: Batch) -> Observer:
    """The observer that holds all V! mappings equally likely, without a repeat: even among the values not yet shown."""
    free = 1.0 - used(batch)
    free[..., 0] = 0.0
    return free / free.sum(-1, keepdim=True)


def informed(batch: Batch, mappings: Int[Tensor, "mapping value"]) -> Observer:
    """The observer that holds these mappings for all there are; NaN where none fits what was shown."""
    given, found = one_hot(mappings, mappings.shape[1] + 1).float(), []
    for piece in batch.pieces(4 * PIECE):
        xs, ys = piece.inputs[0, :, ::2] - 1, piece.targets[0]
        fits, counts = torch.ones(len(xs), len(mappings), dtype=torch.bool, device=xs.device), []
        for slot in range(xs.shape[-1]):
            of_every_x = (fits.float() @ given.flatten(1)).unflatten(-1, given.shape[1:])
            counts.append(of_every_x.take_along_dim(xs[:, slot, None, None], 1)[:, 0])
            fits &= mappings.T[xs[:, slot]] == ys[:, slot, None]
        found.append(torch.stack(counts, 1))
    counted = torch.cat(found)[None]
    return counted / counted.sum(-1, keepdim=True)


def divergence(observer: Observer, found: Found) -> Float[Tensor, "member slot"]:
    """KL(observer ‖ member) in nats, over the sequences on which there is such an observer; NaN without any."""
    terms = observer.xlogy(observer) - observer * _log(found)
    return terms.sum(-1).double().nanmean(1)


def loss(found: Found, batch: Batch) -> ByMember:
    """Mean cross-entropy of all answers, in nats."""
    return -_log(found.take_along_dim(batch.targets[..., None], -1)).mean((1, 2, 3))


def _log(probabilities: Tensor) -> Tensor:
    # The smallest normal number: workers flush smaller ones to zero, and the logarithm of zero is no loss.
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


def tilt(found: Found, uniform: Observer, observer: Observer, seed: int) -> dict[str, ByMember]:
    """How members lean beside how the training mappings lean, over sequences and free values before the last step.

    A lean is a probability less the even share.  `tilt_correlation` of both, `tilt_slope` of the member's on the
    observer's (1: it knows the training mappings), `tilt_control`, the correlation with that observer on other
    sequences; NaN where nothing leans.
    """
    ours, theirs, others = list[Tensor](), list[Tensor](), list[Tensor]()
    for slot in range(found.shape[2] - 1):
        known, count = ~observer[0, :, slot].isnan().any(-1), found.shape[2] - slot
        free = uniform[0, known, slot] > 0
        # Subtracted before it is widened: then a choice that is even in float32 has no tilt at all.
        lean = (observer[0, known, slot][free].view(-1, count) - 1 / count).double()
        keys = rng.bits(seed, "probe", slot, torch.arange(len(lean), device=lean.device))[:, 0]
        ours.append((found[:, known, slot][:, free] - 1 / count).double())
        theirs.append(lean.flatten())
        others.append(lean[keys.argsort(stable=True)].flatten())
    leans = (torch.cat(ours, 1), torch.cat(theirs), torch.cat(others))
    y, x, control = (each - each.mean(-1, keepdim=True) for each in leans)
    along, across = _spread(y), _spread(x)
    correlations = {"correlation": x, "control": control}
    tilts = {name: (each * y).mean(1) / (across * along) for name, each in correlations.items()}
    tilts["slope"] = (x * y).mean(1) / across.square()
    return {f"tilt_{name}": value for name, value in tilts.items()}


def _spread(centred: Tensor) -> Tensor:
    # No more than rounding is none.
    deviation = centred.square().mean(-1).sqrt()
    return deviation.where(deviation > torch.finfo(torch.float32).eps, torch.nan)


def skills(model: Transformer, plain: Batch, repeats: Batch) -> dict[str, Float[Tensor, "member _"]]:
    """Whether the last answer without a repeat is right (`elimination`), and answers to the repeated x of the others:
    whether the value seen before is the most probable (`recall`), its mass, that of the unused values, and the mean and
    largest error against certainty of it."""
    at = repeats.roles["repeat"][0, :, ::2] == 1
    found, answer, shown = predicted(model, repeats)[:, at], repeats.targets[0][at], used(repeats)[0][at]
    certain = one_hot(answer, found.shape[-1])
    error = (found - certain)[..., 1:].abs()
    return {
        "elimination": right(predicted(model, plain), plain)[..., -1],
        "recall": (found.argmax(-1) == answer).double(),
        "mass_recalled": (found * certain).sum(-1),
        "mass_unused": (found * (1.0 - shown))[..., 1:].sum(-1),
        "mean_error": error.mean(-1),
        "largest_error": error.amax(-1),
    }


def expected_maximum(values: Float[Tensor, "member sample"], sample: int) -> ByMember:
    """The expected largest of so many of some values, drawn without replacement; of all where there are no more."""
    # The largest of n of N ordered values is the i-th with probability C(i - 1, n - 1) / C(N, n).
    ranks = torch.arange(min(sample, values.shape[1]), values.shape[1] + 1, dtype=torch.float64)
    logarithms = torch.lgamma(ranks) - torch.lgamma(ranks - ranks[0] + 1)  # but for what all ranks share
    weights = (logarithms - logarithms[-1]).softmax(0).to(values.device)
    return values.double().sort(1).values[:, -len(ranks) :] @ weights


def cached(model: Transformer, inputs: Int[Tensor, "1 sample position"], site: str) -> Tensor:
    """A site on many samples, `[member, sample, …]`."""
    return torch.cat([model.cache(piece, [site])[site] for piece in inputs.split(PIECE, 1)], 1)
