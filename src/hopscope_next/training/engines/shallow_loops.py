"""The shallow engine's loops: what lies between its large matrix products, and the derivatives.

Rows are prefixes of sequences, each judged at its last token.  Arrays are float32 with a leading member axis.  Letters:
m member, n row, h head, k key, t token, d model, j dimension of a head; a slot is a readout position, a source the
embedding of a token or a position code.

Every innermost loop writes to one array: loops with several are not vectorised, because the compiler would have to rule
out too many overlaps, and are up to eight times slower.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from .lanes import Array, compiled, inlined

_EPSILON = np.float32(1e-5)
_LEAST_TOTAL = np.float32(1e-30)
"""Below this a row's softmax, taken from the table's common maximum, has lost digits and is taken afresh."""

# The weights in the order in which the model has them, or the gradients at them, which are overwritten.
Weights = namedtuple(
    "Weights",
    "token position query query_bias key key_bias value value_bias output output_bias gain shift "
    "inner inner_bias outer outer_bias last_gain last_shift readout readout_bias",
)
# Number of the position code of each key, position of each slot, and scale of the scores.
Places = namedtuple("Places", "codes readout scale")
# What is kept between the loops (`shallow` has the shapes); a gradient has the name of what it is at.
Room = namedtuple(
    "Room",
    "tokens slots counts attention spread normed stream out more losses sources back_sources projected "
    "query key write back_write score power back_score",
)


# Rows.


@compiled
def gather(inputs: Array, targets: Array, places: Array, counted: int, room: Array) -> int:
    """Make the rows of a batch: one for each different prefix of the first `counted` slots, then one for each sequence.

    Returns the number of rows of the member that has most.  `inputs` are `[m, batch, k]`, `targets` `[m, batch, r]`.
    """
    room.tokens[:], room.slots[:], room.counts[:], most = 0, 0, 0.0, 0
    for m in range(len(inputs)):
        own = room.tokens[m], room.slots[m], room.counts[m]
        most = max(most, _gather(inputs[m], targets[m], places.readout, counted, *own))
    return most


@compiled
def _gather(
    inputs: Array, targets: Array, readout: Array, counted: int, tokens: Array, slots: Array, counts: Array
) -> int:
    row, size = 0, counts.shape[1]
    for slot in range(len(readout)):
        last = readout[slot]
        found = np.full(size ** (last + 1) if slot < counted else 0, -1, dtype=np.int64)
        for b in range(len(inputs)):
            here, code = row, 0
            if slot < counted:
                for key in range(last + 1):
                    code = code * size + inputs[b, key]
                here = found[code] if found[code] >= 0 else row
                found[code] = here
            if here == row:
                row += 1
                slots[here] = slot
                for key in range(last + 1):
                    tokens[here, key] = inputs[b, key]
            counts[here, targets[b, slot]] += 1.0
    return row


@compiled
def attend(rows: int, w: Array, places: Array, r: Array) -> None:
    """Attention, the residual sum and its layer norm, row by row."""
    for m in range(len(r.slots)):
        # Read once: every reading of a field counts references.
        slots, tokens, sources, score, power = r.slots[m], r.tokens[m], r.sources[m], r.score[m], r.power[m]
        write, attention, normed, stream = r.write[m], r.attention[m], r.normed[m], r.stream[m]
        readout, codes = places.readout, places.codes
        bias, gain, shift = w.output_bias[m], w.gain[m], w.shift[m]
        heads, _, size, width = write.shape
        summed = np.empty(width, dtype=np.float32)
        for n in range(rows):
            slot = slots[n]
            last = readout[slot]
            asking, code = tokens[n, last], size + codes[last]
            for d in range(width):
                summed[d] = sources[asking, d] + sources[code, d] + bias[d]
            for h in range(heads):
                _softmax(score[h, slot, asking], power[h, slot, asking], tokens[n], last, attention[n, h])
                for k in range(last + 1):
                    weight, there = attention[n, h, k], tokens[n, k]
                    for d in range(width):
                        summed[d] += weight * write[h, k, there, d]
            r.spread[m, n] = _standardise(summed, normed[n])
            for d in range(width):
                stream[n, d] = normed[n, d] * gain[d] + shift[d]


@inlined
def _softmax(score: Array, power: Array, tokens: Array, last: int, weights: Array) -> None:
    total = np.float32(0.0)
    for k in range(last + 1):
        weights[k] = power[k, tokens[k]]
        total += weights[k]
    if not total > _LEAST_TOTAL:
        largest = np.float32(-np.inf)
        for k in range(last + 1):
            largest = max(largest, score[k, tokens[k]])
        total = np.float32(0.0)
        for k in range(last + 1):
            weights[k] = np.exp(score[k, tokens[k]] - largest)
            total += weights[k]
    inverse = np.float32(1.0) / total
    for k in range(last + 1):
        weights[k] *= inverse


@inlined
def _standardise(x: Array, normed: Array) -> float:
    # Take mean and deviation out of a vector; returns one over the deviation.
    width = len(x)
    total = np.float32(0.0)
    for d in range(width):
        total += x[d]
    mean = total / np.float32(width)
    square = np.float32(0.0)
    for d in range(width):
        square += (x[d] - mean) * (x[d] - mean)
    inverse = np.float32(1.0) / np.sqrt(square / np.float32(width) + _EPSILON)
    for d in range(width):
        normed[d] = (x[d] - mean) * inverse
    return inverse


@inlined
def _norm_back(
    back: Array, normed: Array, inverse: float, gain: Array, back_gain: Array, back_shift: Array
) -> None:
    # Through _standardise, gain and shift, in place; the gradients at gain and shift are added to.
    width = len(back)
    for d in range(width):
        back_gain[d] += back[d] * normed[d]
    for d in range(width):
        back_shift[d] += back[d]
    for d in range(width):
        back[d] *= gain[d]
    total, along = np.float32(0.0), np.float32(0.0)
    for d in range(width):
        total += back[d]
        along += back[d] * normed[d]
    total /= np.float32(width)
    along /= np.float32(width)
    for d in range(width):
        back[d] = (back[d] - total - normed[d] * along) * inverse


@compiled
def judge(rows: int, batch: int, w: Array, b: Array, r: Array) -> None:
    """The MLP's residual sum and layer norm, readout and cross-entropy, row by row, and the way back."""
    for m in range(len(r.slots)):
        out, stream, losses, slots, counts = r.out[m], r.stream[m], r.losses[m], r.slots[m], r.counts[m]
        gain, shift, bias, back_bias = w.last_gain[m], w.last_shift[m], w.readout_bias[m], b.readout_bias[m]
        back_gain, back_shift, back_outer_bias = b.last_gain[m], b.last_shift[m], b.outer_bias[m]
        readout, whole = np.ascontiguousarray(w.readout[m].T), b.readout[m]
        size, width = readout.shape
        back_readout = np.zeros((size, width), dtype=np.float32)
        normed, final = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
        back, chance = np.empty(width, dtype=np.float32), np.empty(size, dtype=np.float32)
        losses[:] = 0.0
        for slopes in (back_gain, back_shift, back_bias, back_outer_bias):
            slopes[:] = 0.0
        share = np.float32(1.0 / (batch * len(losses)))
        for n in range(rows):
            for d in range(width):
                out[n, d] += stream[n, d]
            inverse = _standardise(out[n], normed)
            for d in range(width):
                final[d] = normed[d] * gain[d] + shift[d]
            losses[slots[n]] += _cross_entropy(final, readout, bias, counts[n], chance)
            for d in range(width):
                back[d] = 0.0
            for t in range(size):
                slope = chance[t] * share
                back_bias[t] += slope
                for d in range(width):
                    back[d] += slope * readout[t, d]
                for d in range(width):
                    back_readout[t, d] += slope * final[d]
            _norm_back(back, normed, inverse, gain, back_gain, back_shift)
            for d in range(width):
                out[n, d] = back[d]
            for d in range(width):
                back_outer_bias[d] += back[d]
        for slot in range(len(losses)):
            losses[slot] /= np.float32(batch)
        for d in range(width):
            for t in range(size):
                whole[d, t] = back_readout[t, d]


@inlined
def _cross_entropy(final: Array, readout: Array, bias: Array, counts: Array, slope: Array) -> Array:
    # Loss of one row, summed over its occurrences; `slope` becomes its gradient by the logits.
    size, width = readout.shape
    largest = np.float32(-np.inf)
    for t in range(size):
        total = bias[t]
        for d in range(width):
            total += final[d] * readout[t, d]
        slope[t] = total
        largest = max(largest, total)
    occurrences, total, right = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for t in range(size):
        occurrences += counts[t]
        if counts[t] > 0.0:
            right += counts[t] * (slope[t] - largest)
        slope[t] = np.exp(slope[t] - largest)
        total += slope[t]
    if occurrences == 0.0:
        slope[:] = 0.0
        return np.float32(0.0)
    for t in range(size):
        slope[t] = occurrences * slope[t] / total - counts[t]
    return occurrences * np.log(total) - right


@compiled
def attend_back(rows: int, w: Array, b: Array, places: Array, r: Array) -> None:
    """Gradient through `attend`."""
    for m in range(len(r.slots)):
        out, more, slots, tokens, write = r.out[m], r.more[m], r.slots[m], r.tokens[m], r.write[m]
        readout, codes = places.readout, places.codes
        normed, attention, gain = r.normed[m], r.attention[m], w.gain[m]
        back_sources, back_write, back_score = r.back_sources[m], r.back_write[m], r.back_score[m]
        back_gain, back_shift, back_bias = b.gain[m], b.shift[m], b.output_bias[m]
        heads, keys, size, width = write.shape
        for table in (back_gain, back_shift, back_bias):
            table[:] = 0.0
        back_sources[:], back_write[:], back_score[:] = 0.0, 0.0, 0.0
        slope = np.empty(keys, dtype=np.float32)
        for n in range(rows):
            slot = slots[n]
            last = readout[slot]
            asking, code = tokens[n, last], size + codes[last]
            back = out[n]
            for d in range(width):
                back[d] += more[n, d]
            _norm_back(back, normed[n], r.spread[m, n], gain, back_gain, back_shift)
            for d in range(width):
                back_bias[d] += back[d]
            for d in range(width):
                back_sources[asking, d] += back[d]
            for d in range(width):
                back_sources[code, d] += back[d]
            for h in range(heads):
                mean = np.float32(0.0)
                for k in range(last + 1):
                    there, weight = tokens[n, k], attention[n, h, k]
                    total = np.float32(0.0)
                    for d in range(width):
                        total += back[d] * write[h, k, there, d]
                    for d in range(width):
                        back_write[h, k, there, d] += weight * back[d]
                    slope[k] = total
                    mean += weight * total
                for k in range(last + 1):
                    back_score[h, slot, asking, k, tokens[n, k]] += attention[n, h, k] * (slope[k] - mean)


# Tables.  A stream at the first layer is token + position code, so every projection of it is the sum of two: tables are
# made from the few sources, not from the many pairs.


@inlined
def _add_product(a: Array, b: Array, out: Array) -> None:
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += factor * b[k, j]


@compiled
def make_tables(w: Array, places: Array, r: Array) -> None:
    """Everything that attention needs of a pair (position, token)."""
    for m in range(len(r.slots)):
        query, key, write, score, power = r.query[m], r.key[m], r.write[m], r.score[m], r.power[m]
        sources, projected, output, codes = r.sources[m], r.projected[m], w.output[m], places.codes
        heads, keys, size, head = key.shape
        sources[:size], sources[size:], projected[:], score[:] = w.token[m], w.position[m], 0.0, 0.0
        for part, weight, bias in (
            (0, w.query, w.query_bias), (1, w.key, w.key_bias), (2, w.value, w.value_bias)
        ):  # fmt: skip
            _add_product(sources, weight[m], projected[part])
            projected[part, :size] += bias[m]  # every pair has one token
        written = np.zeros((heads, len(sources), write.shape[3]), dtype=np.float32)
        for h in range(heads):
            own = slice(h * head, (h + 1) * head)
            _add_product(projected[2, :, own], output[own], written[h])
            _pairs(projected[0, :, own], codes[places.readout], places.scale, query[h])
            _pairs(projected[1, :, own], codes, np.float32(1.0), key[h])
            _pairs(written[h], codes, np.float32(1.0), write[h])
            keys_across = np.ascontiguousarray(_flat(key[h]).T)
            _add_product(_flat(query[h]), keys_across, score[h].reshape(-1, keys * size))
            for slot in range(len(places.readout)):
                for asking in range(size):
                    _exponentials(score[h, slot, asking], places.readout[slot] + 1, power[h, slot, asking])


@inlined
def _flat(table: Array) -> Array:
    return table.reshape(-1, table.shape[-1])


@inlined
def _exponentials(score: Array, seen: int, power: Array) -> None:
    largest = np.float32(-np.inf)
    for k in range(seen):
        for t in range(score.shape[1]):
            largest = max(largest, score[k, t])
    for k in range(seen):
        for t in range(score.shape[1]):
            power[k, t] = np.exp(score[k, t] - largest)


@inlined
def _pairs(of_sources: Array, codes: Array, scale: Any, table: Array) -> None:
    keys, size, features = table.shape
    for k in range(keys):
        code = size + codes[k]
        for t in range(size):
            for j in range(features):
                table[k, t, j] = (of_sources[t, j] + of_sources[code, j]) * scale


@inlined
def _pairs_back(back_table: Array, codes: Array, scale: Any, back: Array) -> None:
    keys, size, features = back_table.shape
    for k in range(keys):
        code = size + codes[k]
        for t in range(size):
            for j in range(features):
                back[t, j] += back_table[k, t, j] * scale
            for j in range(features):
                back[code, j] += back_table[k, t, j] * scale


@compiled
def tables_back(w: Array, b: Array, places: Array, r: Array) -> None:
    """Gradient through `make_tables`."""
    for m in range(len(r.slots)):
        query, key, back_write, back_score = r.query[m], r.key[m], r.back_write[m], r.back_score[m]
        sources, back_sources, projected = r.sources[m], r.back_sources[m], r.projected[m]
        output, back_output, codes = w.output[m], b.output[m], places.codes
        heads, keys, size, head = key.shape
        back = np.zeros(projected.shape, dtype=np.float32)
        back_output[:] = 0.0
        for h in range(heads):
            own = slice(h * head, (h + 1) * head)
            back_query, back_key = np.zeros_like(query[h]), np.zeros_like(key[h])
            back_written = np.zeros_like(sources)
            score = back_score[h].reshape(-1, keys * size)
            _add_product(score, _flat(key[h]), _flat(back_query))
            _add_product(score.T, _flat(query[h]), _flat(back_key))
            _pairs_back(back_query, codes[places.readout], places.scale, back[0, :, own])
            _pairs_back(back_key, codes, np.float32(1.0), back[1, :, own])
            _pairs_back(back_write[h], codes, np.float32(1.0), back_written)
            _add_product(projected[2, :, own].T, back_written, back_output[own])
            _add_product(back_written, np.ascontiguousarray(output[own].T), back[2, :, own])
        for part, weight, back_weight, back_bias in (
            (0, w.query, b.query, b.query_bias), (1, w.key, b.key, b.key_bias), (2, w.value, b.value, b.value_bias),
        ):  # fmt: skip
            back_bias[m] = back[part, :size].sum(0)
            back_weight[m] = 0.0
            _add_product(sources.T, back[part], back_weight[m])
            _add_product(back[part], np.ascontiguousarray(weight[m].T), back_sources)
        b.token[m], b.position[m] = back_sources[:size], back_sources[size:]
