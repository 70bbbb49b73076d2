"""What lies between matrix products with virtual weights: norms from squared lengths that grow layer by layer.

Arrays and letters as in `attention`; further letters: c input, f what a layer reads, e heads times their size (the last
of e + 1 is the bias, whose factor is 1 always).
"""

import numpy as np

from hopscope.training.engines.lanes import Array, compiled, inverse_root, load, spread, store

_EPSILON = np.float32(1e-5)
_HALF, _TWO = np.float32(0.5), np.float32(2.0)


@compiled
def first_square(inputs: Array, gram: Array, share: float, square: Array, inverse: Array) -> None:
    """Variance of the stream at the first norm.

    Args:
        inputs: [c, i, p, l].
        gram: [c, c], products of the centred rows of the embedding.
        share: one over the width.
        square: [i, p, l], overwritten: the variance.
        inverse: [i, p, l], overwritten: one over the standard deviation.
    """
    features, tiles, positions = inputs.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            total = spread(np.float32(0.0))
            for c in range(features):
                along = spread(np.float32(0.0))
                for b in range(features):
                    along = along + spread(gram[c, b]) * load(inputs, (b, i, p))
                total = total + along * load(inputs, (c, i, p))
            total = total * spread(np.float32(share))
            store(square, (i, p), total)
            store(inverse, (i, p), inverse_root(total + spread(_EPSILON)))


@compiled
def scale(projected: Array, inverse: Array) -> None:
    """Divide what is read by the stream's deviation, in place: `[f, i, p, l]` by `[i, p, l]`."""
    features, tiles, positions = projected.shape[:3]
    for f in range(features):
        for i in range(tiles):
            for p in range(positions):
                store(projected, (f, i, p), load(projected, (f, i, p)) * load(inverse, (i, p)))


@compiled
def grow(
    along: Array, mixed: Array, gram: Array, share: float, square: Array, next_square: Array, inverse: Array
) -> None:
    """Variance of the stream after a layer.

    Args:
        along: [e + 1, i, p, l], products of the stream with what the layer's heads write; the products of what it adds
            are added in place, so that it is half the derivative of the squared length by what was mixed.
        mixed: [e, i, p, l], what the layer's heads write.
        gram: [e + 1, e + 1].
        share: one over the width.
        square: [i, p, l], the variance before.
        next_square, inverse: [i, p, l], overwritten: the variance, and one over the deviation.
    """
    features, tiles, positions = mixed.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            total = spread(np.float32(0.0))
            for a in range(features + 1):
                before = load(along, (a, i, p))
                sum_ = spread(gram[a, features])
                for b in range(features):
                    sum_ = sum_ + spread(gram[a, b]) * load(mixed, (b, i, p))
                grown = before + before + sum_
                total = total + (grown * load(mixed, (a, i, p)) if a < features else grown)
                store(along, (a, i, p), before + sum_)
            total = load(square, (i, p)) + total * spread(np.float32(share))
            store(next_square, (i, p), total)
            store(inverse, (i, p), inverse_root(total + spread(_EPSILON)))


@compiled
def grow_back(
    along: Array, mixed: Array, back_square: Array, share: float, back_mixed: Array, back_along: Array
) -> None:
    """Gradient through `grow`.

    Args:
        along: as `grow` leaves it.
        mixed: [e, i, p, l].
        back_square: [i, p, l], at the variance after the layer.
        share: one over the width.
        back_mixed: [e, i, p, l], added to.
        back_along: [e + 1, i, p, l], overwritten: at the products of the stream; half its products with what was
            mixed (and 1) are the gradient at `gram`.
    """
    features, tiles, positions = mixed.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            slope = load(back_square, (i, p)) * spread(_TWO * np.float32(share))
            for a in range(features):
                added = slope * load(along, (a, i, p))
                store(back_mixed, (a, i, p), load(back_mixed, (a, i, p)) + added)
                store(back_along, (a, i, p), slope * load(mixed, (a, i, p)))
            store(back_along, (features, i, p), slope)


@compiled
def scale_back(
    projected: Array, bias: Array, inverse: Array, back_projected: Array, back_square: Array
) -> None:
    """Gradient through `scale` and the deviation.

    Args:
        projected: [f, i, p, l], scaled, the first ones with their bias.
        bias: of the first ones.
        inverse: [i, p, l].
        back_projected: [f, i, p, l]; becomes the gradient before the scale.
        back_square: [i, p, l], at the variance, added to.
    """
    features, tiles, positions = projected.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            along, deviation = spread(np.float32(0.0)), load(inverse, (i, p))
            for f in range(features):
                slope = load(back_projected, (f, i, p))
                if f < len(bias):
                    along = along + slope * (load(projected, (f, i, p)) - spread(bias[f]))
                else:
                    along = along + slope * load(projected, (f, i, p))
                store(back_projected, (f, i, p), slope * deviation)
            lost = along * deviation * deviation * spread(_HALF)
            store(back_square, (i, p), load(back_square, (i, p)) - lost)
