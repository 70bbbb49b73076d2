"""How much a training step of the deep models computes, by the usual count."""

from _depth import CHAINS, INPUT_SIZE, Shape


def operations(shape: Shape) -> int:
    """Floating-point operations of training on one sample, forwards and backwards, of the model as it is written.

    Every term of a matrix product of the forward pass counts two, a multiplication and an addition, and going back
    twice as much: there are two products for each, with its inputs and with its weights (nothing goes back to the
    samples, but the embedding counts as all others do).  The products, of P positions of which the last N are queries:

    * the embedding, at P positions;
    * in every layer but the last queries, keys, values, output and both matrices of the MLP, at P positions; scores
      and the mixing of values, for the P (P + 1) / 2 of P² pairs that a causal mask lets through;
    * in the last layer keys and values at P positions; queries, scores, mixing, output and MLP at the N queries;
    * the readout, at the N queries.

    Not counted are norms, softmax, GELU, biases, residual sums, the loss, the drawing of samples and the optimizer.

    A program that computes more than it must has a lower rate by this count than its processor does.  One that finds
    the same gradients by fewer operations than the model is written with has a higher one, and may exceed the
    machine's peak: ours computes the first layer from the few numbers of an input, and where heads are narrow and the
    stream is wide (the engine `virtual`) every layer from what the heads below have mixed.
    """
    embedding = shape.positions * INPUT_SIZE * shape.width
    layers = (shape.layers - 1) * _layer(shape, shape.positions) + _layer(shape, CHAINS)
    readout = CHAINS * shape.width * shape.output_size
    return 3 * 2 * (embedding + layers + readout)


def _layer(shape: Shape, rows: int) -> int:
    """Terms of the forward products of a layer of which only the last `rows` positions are read."""
    unread = shape.positions - rows
    pairs = (shape.positions * (shape.positions + 1) - unread * (unread + 1)) // 2
    keys_and_values = 2 * shape.positions * shape.width * shape.inner
    queries_and_output = 2 * rows * shape.width * shape.inner
    mlp = 2 * rows * shape.width * shape.mlp_size
    return keys_and_values + queries_and_output + 2 * pairs * shape.inner + mlp
