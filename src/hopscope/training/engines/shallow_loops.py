"""The shallow engine's loops: which prefixes a batch has, and attention over them.

Rows are prefixes of sequences, each asked at its last token.  Letters of the shapes: n row, in tiles of lanes (i, l);
h head, k key, t token, d model; a slot r is a readout position.  Arrays of numbers are float32.
"""

import numpy as np

from .attention import softmax
from .lanes import LANES, Array, compiled

_LN_2 = np.float32(np.log(2.0))


@compiled
def gather(
    inputs: Array, targets: Array, readout: Array, size: int, counted: int,
    tokens: Array, slots: Array, counts: Array,
) -> None:  # fmt: skip
    """Make the rows of a batch: one for each different prefix of the first `counted` slots, then one for each sequence.

    Args:
        inputs, targets: `[batch, k]` and `[batch, r]`.
        readout: position of each slot.
        size: number of tokens.
        counted: slots whose prefixes are few enough to be numbered.
        tokens, slots, counts: overwritten by the rows: `[n, k]`, `[n]`, and how often each target follows,
            `[target, n]`, which is never where a row is not used.
    """
    tokens[:], slots[:], counts[:] = 0, 0, 0.0
    row = 0
    for slot in range(len(readout)):
        seen = readout[slot] + 1
        known = np.full(size**seen if slot < counted else 0, -1, dtype=np.int64)
        for b in range(len(inputs)):
            here, code = row, 0
            if slot < counted:
                for key in range(seen):
                    code = code * size + inputs[b, key]
                here = known[code] if known[code] >= 0 else row
                known[code] = here
            if here == row:
                row += 1
                slots[here] = slot
                for key in range(seen):
                    tokens[here, key] = inputs[b, key]
            counts[targets[b, slot], here] += 1.0


@compiled
def attend(
    tokens: Array, slots: Array, readout: Array, first: Array, score: Array, write: Array, pattern: Array, stream: Array
) -> None:  # fmt: skip
    """What the stream is after attention.

    Args:
        tokens, slots, readout: the rows.
        first: the stream before attention, `[r, t, d]`.
        score: to the base 2, `[h, r, t, k, t]`.
        write: what a head adds to the stream, of each thing it may read, `[h, k, t, d]`.
        pattern, stream: overwritten, `[i, h, k, l]` and `[d, n]`.
    """
    heads, keys, _, width = write.shape
    summed = np.empty(width, dtype=np.float32)
    for n in range(len(slots)):
        slot = slots[n]
        last = readout[slot]
        own = score[:, slot, tokens[n, last]]
        for h in range(heads):
            for k in range(keys):
                seen = own[h, k, tokens[n, k]] if k <= last else np.float32(-np.inf)
                pattern[n // LANES, h, k, n % LANES] = seen
    for i in range(len(pattern)):
        for h in range(heads):
            softmax(pattern[i, h], keys, keys)
    for n in range(len(slots)):
        slot = slots[n]
        last = readout[slot]
        asking = tokens[n, last]
        for d in range(width):
            summed[d] = first[slot, asking, d]
        for h in range(heads):
            for k in range(last + 1):
                share, there = pattern[n // LANES, h, k, n % LANES], tokens[n, k]
                for d in range(width):
                    summed[d] += share * write[h, k, there, d]
        for d in range(width):
            stream[d, n] = summed[d]


@compiled
def attend_back(
    tokens: Array, slots: Array, readout: Array, write: Array, pattern: Array, back: Array,
    back_first: Array, back_score: Array, back_write: Array,
) -> None:  # fmt: skip
    """From the gradient at the stream, `back` `[d, n]`, to those at the tables, to which it is added."""
    heads, keys, _, width = write.shape
    slope, own = np.empty(keys, dtype=np.float32), np.empty(width, dtype=np.float32)
    for n in range(len(slots)):
        slot = slots[n]
        last = readout[slot]
        asking = tokens[n, last]
        for d in range(width):
            own[d] = back[d, n]
        for d in range(width):
            back_first[slot, asking, d] += own[d]
        for h in range(heads):
            mean = np.float32(0.0)
            for k in range(last + 1):
                share, there, total = pattern[n // LANES, h, k, n % LANES], tokens[n, k], np.float32(0.0)
                for d in range(width):
                    total += own[d] * write[h, k, there, d]
                for d in range(width):
                    back_write[h, k, there, d] += share * own[d]
                slope[k] = total
                mean += share * total
            for k in range(last + 1):
                share = pattern[n // LANES, h, k, n % LANES]
                back_score[h, slot, asking, k, tokens[n, k]] += _LN_2 * share * (slope[k] - mean)
