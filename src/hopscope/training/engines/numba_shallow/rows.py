"""The shallow engine's loops over rows: what lies between the large matrix products, and its derivatives.

Rows are prefixes of sequences, each judged at its last token.  Arrays are C-contiguous float32 with a leading member
axis; the letters in the comments are those of the shapes: m member, n row, h head, k key, t token, r slot (readout
position), d model, f mlp.

Every innermost loop writes to one array: loops with several are not vectorised, because the compiler would have to rule
out too many overlaps, and are up to eight times slower.
"""

import numpy as np

from hopscope.training.engines.lanes import Array, compiled, inlined

_NORM_EPSILON = np.float32(1e-5)
_LEAST_TOTAL = np.float32(1e-30)
"""Below this a row's softmax, taken from the table's common maximum, has lost digits and is taken afresh."""


@compiled
def gather_rows(
    inputs: Array,
    targets: Array,
    readout: Array,
    counted: int,
    tokens: Array,
    slots: Array,
    counts: Array,
    used: Array,
) -> None:
    """Make the rows of a batch: one for each different prefix of the first `counted` slots, then one for each sequence.

    Args:
        inputs: [m, batch, k] tokens.
        targets: [m, batch, r] tokens.
        tokens, slots, counts: [m, n, k], [m, n], [m, n, t], overwritten: tokens up to the row's own, its slot, and how
            often each target follows it.  Rows that are not used have count 0.
        used: [m], overwritten: rows of each member.
    """
    members, batch = inputs.shape[:2]
    size = counts.shape[2]
    counts[:] = 0.0
    tokens[:] = 0
    slots[:] = 0
    for m in range(members):
        row = 0
        for slot in range(counted):
            row = _count_prefixes(
                inputs[m], targets[m], readout[slot], slot, row, tokens[m], slots[m], counts[m], size
            )
        for slot in range(counted, len(readout)):
            last = readout[slot]
            for b in range(batch):
                for key in range(last + 1):
                    tokens[m, row, key] = inputs[m, b, key]
                slots[m, row] = slot
                counts[m, row, targets[m, b, slot]] = 1.0
                row += 1
        used[m] = row


@compiled
def _count_prefixes(
    inputs: Array,
    targets: Array,
    last: int,
    slot: int,
    row: int,
    tokens: Array,
    slots: Array,
    counts: Array,
    size: int,
) -> int:
    """Rows of the different prefixes that end at position `last`; returns the next free row."""
    found = np.full(size ** (last + 1), -1, dtype=np.int64)
    for b in range(inputs.shape[0]):
        code = 0
        for key in range(last + 1):
            code = code * size + inputs[b, key]
        here = found[code]
        if here < 0:
            here = row
            found[code] = row
            row += 1
            slots[here] = slot
            for key in range(last + 1):
                tokens[here, key] = inputs[b, key]
        counts[here, targets[b, slot]] += 1.0
    return row


@compiled
def attend(
    rows: int, tokens: Array, slots: Array, readout: Array, sources: Array, position_of: Array, output_bias: Array,
    gain: Array, shift: Array, score: Array, power: Array, write: Array,
    attention: Array, normed: Array, spread: Array, stream: Array,
) -> None:  # fmt: skip
    """Attention, the residual sum and its layer norm, row by row.

    Args:
        gain, shift: [m, d], of the layer norm.
        attention: [m, n, h, k]; normed: [m, n, d], before gain and shift; spread: [m, n], one over the standard
            deviation; stream: [m, n, d]; overwritten.
    """
    for m in range(len(tokens)):
        _attend_of(rows, tokens[m], slots[m], readout, sources[m], position_of, output_bias[m], gain[m], shift[m],
                   score[m], power[m], write[m], attention[m], normed[m], spread[m], stream[m])  # fmt: skip


@compiled
def _attend_of(
    rows: int, tokens: Array, slots: Array, readout: Array, sources: Array, position_of: Array, output_bias: Array,
    gain: Array, shift: Array, score: Array, power: Array, write: Array,
    attention: Array, normed: Array, spread: Array, stream: Array,
) -> None:  # fmt: skip
    """`attend` for one member."""
    heads, size, width = write.shape[0], write.shape[2], write.shape[3]
    summed = np.empty(width, dtype=np.float32)
    for n in range(rows):
        slot = slots[n]
        last = readout[slot]
        asking = tokens[n, last]
        code = size + position_of[last]
        for d in range(width):
            summed[d] = sources[asking, d] + sources[code, d] + output_bias[d]
        for h in range(heads):
            _softmax(score[h, slot, asking], power[h, slot, asking], tokens[n], last, attention[n, h])
            for k in range(last + 1):
                weight, there = attention[n, h, k], tokens[n, k]
                for d in range(width):
                    summed[d] += weight * write[h, k, there, d]
        spread[n] = _standardise(summed, normed[n])
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
    """Take mean and deviation out of a vector; returns one over the deviation."""
    width = len(x)
    total = np.float32(0.0)
    for d in range(width):
        total += x[d]
    mean = total / np.float32(width)
    square = np.float32(0.0)
    for d in range(width):
        square += (x[d] - mean) * (x[d] - mean)
    inverse = np.float32(1.0) / np.sqrt(square / np.float32(width) + _NORM_EPSILON)
    for d in range(width):
        normed[d] = (x[d] - mean) * inverse
    return inverse


@inlined
def _norm_back(
    back: Array, normed: Array, inverse: float, gain: Array, back_gain: Array, back_shift: Array
) -> None:
    """Gradient through `_standardise`, gain and shift, in place; those of gain and shift are added to."""
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
def judge(
    rows: int, batch: int, slots: Array, counts: Array, stream: Array, out: Array, gain: Array, shift: Array,
    readout_weight: Array, readout_bias: Array,
    losses: Array, back_gain: Array, back_shift: Array, back_weight: Array, back_bias: Array, back_out_bias: Array,
) -> None:  # fmt: skip
    """The MLP's residual sum and layer norm, readout and cross-entropy, row by row, and the way back.

    Args:
        batch: sequences that the losses are means over.
        stream: [m, n, d], enters the MLP; out: [m, n, d], the MLP's output; becomes the gradient at their sum.
        losses: [m, r], overwritten.
        back_…: gradients of gain, shift, readout and of the MLP's last bias; overwritten.
    """
    for m in range(len(slots)):
        _judge_of(rows, batch, slots[m], counts[m], stream[m], out[m], gain[m], shift[m], readout_weight[m],
                  readout_bias[m], losses[m], back_gain[m], back_shift[m], back_weight[m], back_bias[m],
                  back_out_bias[m])  # fmt: skip


@compiled
def _judge_of(
    rows: int, batch: int, slots: Array, counts: Array, stream: Array, out: Array, gain: Array, shift: Array,
    readout_weight: Array, readout_bias: Array,
    losses: Array, back_gain: Array, back_shift: Array, back_weight: Array, back_bias: Array, back_out_bias: Array,
) -> None:  # fmt: skip
    """`judge` for one member."""
    width, size = out.shape[1], counts.shape[1]
    weight = np.ascontiguousarray(readout_weight.T)
    back_weight_t = np.zeros((size, width), dtype=np.float32)
    normed = np.empty(width, dtype=np.float32)
    final = np.empty(width, dtype=np.float32)
    back = np.empty(width, dtype=np.float32)
    chance = np.empty(size, dtype=np.float32)
    losses[:] = 0.0
    back_gain[:] = 0.0
    back_shift[:] = 0.0
    back_bias[:] = 0.0
    back_out_bias[:] = 0.0
    per_row = np.float32(1.0 / (batch * len(losses)))
    for n in range(rows):
        for d in range(width):
            out[n, d] += stream[n, d]
        inverse = _standardise(out[n], normed)
        for d in range(width):
            final[d] = normed[d] * gain[d] + shift[d]
        losses[slots[n]] += _cross_entropy(final, weight, readout_bias, counts[n], chance)
        for d in range(width):
            back[d] = 0.0
        for t in range(size):
            slope = chance[t] * per_row
            back_bias[t] += slope
            for d in range(width):
                back[d] += slope * weight[t, d]
            for d in range(width):
                back_weight_t[t, d] += slope * final[d]
        _norm_back(back, normed, inverse, gain, back_gain, back_shift)
        for d in range(width):
            out[n, d] = back[d]
        for d in range(width):
            back_out_bias[d] += back[d]
    for r in range(len(losses)):
        losses[r] /= np.float32(batch)
    for d in range(width):
        for t in range(size):
            back_weight[d, t] = back_weight_t[t, d]


@inlined
def _cross_entropy(final: Array, weight: Array, bias: Array, counts: Array, slope: Array) -> Array:
    """Loss of one row, summed over its occurrences; `slope` becomes its gradient by the logits."""
    size, width = weight.shape
    largest = np.float32(-np.inf)
    for t in range(size):
        total = bias[t]
        for d in range(width):
            total += final[d] * weight[t, d]
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
def rectify_back(rows: int, hidden: Array, back: Array, back_bias: Array) -> None:
    """Gradient through the ReLU, [m, n, f], in place, and that of the bias before it, [m, f]."""
    total = np.empty(hidden.shape[2], dtype=np.float32)  # of its own: a sum into the result is not vectorised
    for m in range(len(hidden)):
        total[:] = 0.0
        for n in range(rows):
            for j in range(len(total)):
                slope = back[m, n, j] if hidden[m, n, j] > 0.0 else np.float32(0.0)
                back[m, n, j] = slope
                total[j] += slope
        back_bias[m] = total


@compiled
def attend_back(
    rows: int, tokens: Array, slots: Array, readout: Array, position_of: Array, gain: Array,
    back: Array, more: Array, attention: Array, normed: Array, spread: Array, write: Array,
    back_gain: Array, back_shift: Array, back_output_bias: Array, back_sources: Array, back_write: Array,
    back_score: Array,
) -> None:  # fmt: skip
    """Gradient through `attend`.

    Args:
        back, more: [m, n, d], two parts of the gradient at the stream; `back` is used up.
        back_…: gradients of gain, shift, bias, sources and of the tables; overwritten.
    """
    for m in range(len(tokens)):
        _attend_back_of(rows, tokens[m], slots[m], readout, position_of, gain[m], back[m], more[m], attention[m],
                        normed[m], spread[m], write[m], back_gain[m], back_shift[m], back_output_bias[m],
                        back_sources[m], back_write[m], back_score[m])  # fmt: skip


@compiled
def _attend_back_of(
    rows: int, tokens: Array, slots: Array, readout: Array, position_of: Array, gain: Array,
    back: Array, more: Array, attention: Array, normed: Array, spread: Array, write: Array,
    back_gain: Array, back_shift: Array, back_output_bias: Array, back_sources: Array, back_write: Array,
    back_score: Array,
) -> None:  # fmt: skip
    """`attend_back` for one member."""
    heads, size, width = write.shape[0], write.shape[2], write.shape[3]
    for table in (back_gain, back_shift, back_output_bias):
        table[:] = 0.0
    back_sources[:] = 0.0
    back_write[:] = 0.0
    back_score[:] = 0.0
    slope = np.empty(attention.shape[2], dtype=np.float32)
    for n in range(rows):
        last = readout[slots[n]]
        asking = tokens[n, last]
        code = size + position_of[last]
        for d in range(width):
            back[n, d] += more[n, d]
        _norm_back(back[n], normed[n], spread[n], gain, back_gain, back_shift)
        for d in range(width):
            back_output_bias[d] += back[n, d]
        for d in range(width):
            back_sources[asking, d] += back[n, d]
        for d in range(width):
            back_sources[code, d] += back[n, d]
        for h in range(heads):
            mean = np.float32(0.0)
            for k in range(last + 1):
                there, weight = tokens[n, k], attention[n, h, k]
                total = np.float32(0.0)
                for d in range(width):
                    total += back[n, d] * write[h, k, there, d]
                for d in range(width):
                    back_write[h, k, there, d] += weight * back[n, d]
                slope[k] = total
                mean += weight * total
            for k in range(last + 1):
                back_score[h, slots[n], asking, k, tokens[n, k]] += attention[n, h, k] * (slope[k] - mean)
