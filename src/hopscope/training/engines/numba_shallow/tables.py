"""The shallow engine's tables: what attention needs of every pair (position, token), and the derivatives.

Arrays and letters as in `rows`.  A stream at the first layer is token + position code, so every projection of it
is the sum of two: tables are made from the few sources, not from the many pairs.
"""

import numpy as np

from hopscope.training.engines.lanes import Array, compiled


@compiled
def _add_product(a: Array, b: Array, out: Array) -> None:
    """out += a @ b for small matrices."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += factor * b[k, j]


@compiled
def _add_product_t(a: Array, b: Array, out: Array) -> None:
    """out += a @ bᵀ for small matrices."""
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = np.float32(0.0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[j, k]
            out[i, j] += total


@compiled
def _add_t_product(a: Array, b: Array, out: Array) -> None:
    """out += aᵀ @ b for small matrices."""
    for k in range(a.shape[0]):
        for i in range(a.shape[1]):
            factor = a[k, i]
            for j in range(b.shape[1]):
                out[i, j] += factor * b[k, j]


@compiled
def make_tables(
    token: Array, position: Array, position_of: Array, readout: Array, scale: float,
    query_weight: Array, query_bias: Array, key_weight: Array, key_bias: Array,
    value_weight: Array, value_bias: Array, output_weight: Array,
    sources: Array, projected: Array, query: Array, key: Array, write: Array, score: Array, power: Array,
) -> None:  # fmt: skip
    """Everything that attention needs of a pair (position, token).

    Args:
        token, position: [m, t, d] and [m, codes, d] embeddings.
        position_of: [k], number of the code of each position.
        readout: [r].
        sources: [m, t + codes, d], overwritten: both embeddings, one below the other.
        projected: [m, 3, t + codes, inner], overwritten: queries, keys and values of the sources, without bias.
        query: [m, h, r, t, head_dim], scaled; key: [m, h, k, t, head_dim]; write: [m, h, k, t, d], what a head adds to
            the stream when it reads an entry with full weight; score, power: [m, h, r, t, k, t], scores and their
            exponentials; overwritten.
    """
    size = token.shape[1]
    for m in range(len(token)):
        sources[m, :size] = token[m]
        sources[m, size:] = position[m]
        _tables_of(sources[m], position_of, readout, scale, query_weight[m], query_bias[m], key_weight[m],
                   key_bias[m], value_weight[m], value_bias[m], output_weight[m], projected[m], query[m], key[m],
                   write[m], score[m], power[m])  # fmt: skip


@compiled
def _tables_of(
    sources: Array, position_of: Array, readout: Array, scale: float,
    query_weight: Array, query_bias: Array, key_weight: Array, key_bias: Array,
    value_weight: Array, value_bias: Array, output_weight: Array,
    projected: Array, query: Array, key: Array, write: Array, score: Array, power: Array,
) -> None:  # fmt: skip
    """`make_tables` for one member."""
    heads, keys, size, head_dim = key.shape
    projected[:] = 0.0
    _add_product(sources, query_weight, projected[0])
    _add_product(sources, key_weight, projected[1])
    _add_product(sources, value_weight, projected[2])
    for h in range(heads):
        first = h * head_dim
        for k in range(keys):
            code = size + position_of[k]
            for t in range(size):
                for j in range(head_dim):
                    key[h, k, t, j] = (
                        projected[1, t, first + j] + projected[1, code, first + j] + key_bias[first + j]
                    )
        for r in range(len(readout)):
            code = size + position_of[readout[r]]
            for t in range(size):
                for j in range(head_dim):
                    query[h, r, t, j] = (
                        projected[0, t, first + j] + projected[0, code, first + j] + query_bias[first + j]
                    ) * scale
        _write_table(projected[2], value_bias, output_weight, position_of, first, head_dim, write[h])
        _score_table(query[h], key[h], readout, score[h], power[h])


@compiled
def _write_table(
    value: Array,
    value_bias: Array,
    output_weight: Array,
    position_of: Array,
    first: int,
    head_dim: int,
    write: Array,
) -> None:
    keys, size, width = write.shape
    part = np.zeros((value.shape[0], width), dtype=np.float32)
    constant = np.zeros(width, dtype=np.float32)
    for j in range(head_dim):
        for d in range(width):
            constant[d] += value_bias[first + j] * output_weight[first + j, d]
    for i in range(value.shape[0]):
        for j in range(head_dim):
            factor = value[i, first + j]
            for d in range(width):
                part[i, d] += factor * output_weight[first + j, d]
    for k in range(keys):
        code = size + position_of[k]
        for t in range(size):
            for d in range(width):
                write[k, t, d] = part[t, d] + part[code, d] + constant[d]


@compiled
def _score_table(query: Array, key: Array, readout: Array, score: Array, power: Array) -> None:
    slots, size, head_dim = query.shape
    for r in range(slots):
        for asking in range(size):
            largest = np.float32(-np.inf)
            for k in range(readout[r] + 1):
                for t in range(size):
                    total = np.float32(0.0)
                    for j in range(head_dim):
                        total += query[r, asking, j] * key[k, t, j]
                    score[r, asking, k, t] = total
                    largest = max(largest, total)
            for k in range(readout[r] + 1):
                for t in range(size):
                    power[r, asking, k, t] = np.exp(score[r, asking, k, t] - largest)


@compiled
def tables_back(
    sources: Array, position_of: Array, readout: Array, scale: float,
    query_weight: Array, key_weight: Array, value_weight: Array, value_bias: Array, output_weight: Array,
    projected: Array, query: Array, key: Array, back_write: Array, back_score: Array, back_sources: Array,
    back_token: Array, back_position: Array,
    back_query_weight: Array, back_query_bias: Array, back_key_weight: Array, back_key_bias: Array,
    back_value_weight: Array, back_value_bias: Array, back_output_weight: Array,
) -> None:  # fmt: skip
    """Gradient through `make_tables`; `back_sources` is added to, the others are overwritten."""
    size = back_token.shape[1]
    for m in range(len(sources)):
        _tables_back_of(sources[m], position_of, readout, scale, query_weight[m], key_weight[m], value_weight[m],
                        value_bias[m], output_weight[m], projected[m], query[m], key[m], back_write[m], back_score[m],
                        back_sources[m], back_query_weight[m], back_query_bias[m], back_key_weight[m],
                        back_key_bias[m], back_value_weight[m], back_value_bias[m], back_output_weight[m])  # fmt: skip
        back_token[m] = back_sources[m, :size]
        back_position[m] = back_sources[m, size:]


@compiled
def _tables_back_of(
    sources: Array, position_of: Array, readout: Array, scale: float,
    query_weight: Array, key_weight: Array, value_weight: Array, value_bias: Array, output_weight: Array,
    projected: Array, query: Array, key: Array, back_write: Array, back_score: Array, back_sources: Array,
    back_query_weight: Array, back_query_bias: Array, back_key_weight: Array, back_key_bias: Array,
    back_value_weight: Array, back_value_bias: Array, back_output_weight: Array,
) -> None:  # fmt: skip
    """`tables_back` for one member."""
    heads, keys, size, head_dim = key.shape
    width = output_weight.shape[1]
    back = np.zeros(projected.shape, dtype=np.float32)
    for table in (back_query_bias, back_key_bias, back_value_bias):
        table[:] = 0.0
    for matrix in (back_query_weight, back_key_weight, back_value_weight, back_output_weight):
        matrix[:] = 0.0
    for h in range(heads):
        first = h * head_dim
        _score_back(query[h], key[h], readout, position_of, back_score[h], scale, first, back,
                    back_query_bias, back_key_bias)  # fmt: skip
        part = np.zeros((sources.shape[0], width), dtype=np.float32)
        constant = np.zeros(width, dtype=np.float32)
        for k in range(keys):
            code = size + position_of[k]
            for t in range(size):
                for d in range(width):
                    part[t, d] += back_write[h, k, t, d]
                for d in range(width):
                    part[code, d] += back_write[h, k, t, d]
                for d in range(width):
                    constant[d] += back_write[h, k, t, d]
        for j in range(head_dim):
            total = np.float32(0.0)
            for d in range(width):
                total += constant[d] * output_weight[first + j, d]
            for d in range(width):
                back_output_weight[first + j, d] += value_bias[first + j] * constant[d]
            back_value_bias[first + j] = total
            for i in range(sources.shape[0]):
                total = np.float32(0.0)
                factor = projected[2, i, first + j]
                for d in range(width):
                    total += part[i, d] * output_weight[first + j, d]
                for d in range(width):
                    back_output_weight[first + j, d] += factor * part[i, d]
                back[2, i, first + j] = total
    _add_t_product(sources, back[0], back_query_weight)
    _add_t_product(sources, back[1], back_key_weight)
    _add_t_product(sources, back[2], back_value_weight)
    _add_product_t(back[0], query_weight, back_sources)
    _add_product_t(back[1], key_weight, back_sources)
    _add_product_t(back[2], value_weight, back_sources)


@compiled
def _score_back(
    query: Array, key: Array, readout: Array, position_of: Array, back_score: Array, scale: float, first: int,
    back: Array, back_query_bias: Array, back_key_bias: Array,
) -> None:  # fmt: skip
    """Gradient of one head's scores at the projected sources and at the biases."""
    size, head_dim = query.shape[1:]
    back_query = np.empty(head_dim, dtype=np.float32)
    back_key = np.zeros(key.shape, dtype=np.float32)
    for r in range(len(readout)):
        code = size + position_of[readout[r]]
        for asking in range(size):
            back_query[:] = 0.0
            for k in range(readout[r] + 1):
                for t in range(size):
                    slope = back_score[r, asking, k, t]
                    for j in range(head_dim):
                        back_query[j] += slope * key[k, t, j]
                    for j in range(head_dim):
                        back_key[k, t, j] += slope * query[r, asking, j]
            for j in range(head_dim):
                scaled = back_query[j] * scale
                back[0, asking, first + j] += scaled
                back[0, code, first + j] += scaled
                back_query_bias[first + j] += scaled
    for k in range(key.shape[0]):
        code = size + position_of[k]
        for t in range(size):
            for j in range(head_dim):
                back[1, t, first + j] += back_key[k, t, j]
                back[1, code, first + j] += back_key[k, t, j]
                back_key_bias[first + j] += back_key[k, t, j]
