"""What ideal observers of permutation lookup predict, by counting: the slow obvious references of the probes."""


def uniform_posterior(xs, ys, x_query, values):
    """P(y | prefix) of the values 1 … V under a uniform prior over all permutations.

    One-hot if the queried symbol was shown before, otherwise uniform over the unused values.
    """
    shown = dict(zip(xs, ys, strict=True))
    if x_query in shown:
        return [1.0 if value == shown[x_query] else 0.0 for value in range(1, values + 1)]
    unused = set(range(1, values + 1)) - set(shown.values())
    return [1 / len(unused) if value in unused else 0.0 for value in range(1, values + 1)]


def mappings_posterior(xs, ys, x_query, mappings, values):
    """P(y | prefix) of the values 1 … V under a uniform prior over the given mappings; `None` if none fits.

    Entry x − 1 of a mapping is the value of symbol x.
    """
    counts = [0] * values
    for mapping in mappings:
        if all(mapping[x - 1] == y for x, y in zip(xs, ys, strict=True)):
            counts[mapping[x_query - 1] - 1] += 1
    fitting = sum(counts)
    return [count / fitting for count in counts] if fitting else None
