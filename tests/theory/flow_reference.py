"""The model of the paper's section 5 once more, as slow and as literal as can be: sets of named pieces, no runs.

Nothing is taken from `hopscope.theory`: positions, time order, sharing and reading are all defined here.
"""

import itertools

QUERY = "query"


def tokens(order):
    """Every position with its two pieces, in time order: symbol, and position code (shared within a pair)."""
    pairs = [
        (("first", pair), {("symbol", pair - 1), ("code", pair)})
        if token == 0
        else (("second", pair), {("symbol", pair), ("code", pair)})
        for pair in order
        for token in (0, 1)
    ]
    return [*pairs, (QUERY, {("symbol", 0), ("code", QUERY)})]


class Flow:
    """What may read what, and what each position begins with."""

    def __init__(self, order, mask):
        self.names = [name for name, _ in tokens(order)]
        self.start = {name: frozenset(pieces) for name, pieces in tokens(order)}
        moment = {name: time for time, name in enumerate(self.names)}
        self.seen = {
            name: [other for other in self.names if mask == "none" or moment[other] <= moment[name]]
            for name in self.names
        }
        self.goal = ("symbol", len(order))


def most_held(order, mask):
    """What every position holds after each layer if it reads everything it may, until the query has the goal."""
    flow = Flow(order, mask)
    layers = [flow.start]
    while flow.goal not in layers[-1][QUERY]:
        held = layers[-1]
        layers.append(
            {
                name: frozenset().union(
                    *(held[other] for other in flow.seen[name] if held[other] & held[name])
                )
                for name in flow.names
            }
        )
    return layers


def joint_states(flow, wanted, layers, known=None):
    """Everything that the `wanted` positions can hold together after some layers, one target each or none.

    All joint choices of targets are tried.  What a position not wanted chooses in the last layer cannot matter; those
    that are read join the wanted ones of the layer before.
    """
    known = {} if known is None else known
    wanted = tuple(sorted(wanted, key=str))
    if layers == 0:
        return {tuple(flow.start[name] for name in wanted)}
    if (wanted, layers) not in known:
        found = set()
        # In the first layer, whoever shares nothing is left out at once: the check below would refuse them.
        allowed = [
            [other for other in flow.seen[name] if layers > 1 or flow.start[other] & flow.start[name]]
            for name in wanted
        ]
        for targets in itertools.product(*allowed):
            before = tuple(sorted({*wanted, *targets}, key=str))
            for state in joint_states(flow, before, layers - 1, known):
                held = dict(zip(before, state, strict=True))
                pairs = list(zip(wanted, targets, strict=True))
                # To read oneself is to read nobody.
                if all(held[name] & held[target] for name, target in pairs):
                    found.add(tuple(held[name] | held[target] for name, target in pairs))
        known[wanted, layers] = found
    return known[wanted, layers]


def single_target_succeeds(order, mask, layers):
    """Whether any plan with one target per position and layer brings the goal to the query."""
    flow = Flow(order, mask)
    return any(flow.goal in held for (held,) in joint_states(flow, (QUERY,), layers))


def carried_out(plan, order, mask):
    """What every position holds after each layer of a plan; reading what may not be read is an error.

    `plan[layer][position]` are targets; positions are numbered along the chain, 0 the query, 2k - 1 and 2k the tokens
    of pair k.
    """
    flow = Flow(order, mask)
    named = [QUERY, *((token, pair) for pair in range(1, len(order) + 1) for token in ("first", "second"))]
    layers = [flow.start]
    for targets in plan:
        held = layers[-1]
        after = dict(held)
        for name, numbers in zip(named, targets, strict=True):
            for number in numbers:
                assert named[number] in flow.seen[name] and held[named[number]] & held[name]
                after[name] |= held[named[number]]
        layers.append(after)
    return [[held[name] for name in named] for held in layers]


def as_runs(held):
    """Sets of pieces as (first, last) along the chain, without the query's own code; checks that none is missing."""
    runs = []
    for pieces in held:
        numbers = sorted(
            2 * of if kind == "symbol" else 2 * of - 1 for kind, of in pieces if (kind, of) != ("code", QUERY)
        )
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        runs.append((numbers[0], numbers[-1]))
    return runs
