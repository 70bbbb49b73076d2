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


def closed_form_layers(steps, mask, order):
    """`exact_layers` by formula: ⌈log₃(4D + 1)⌉ without a mask, 1 + ⌈log₂(D + 1)⌉ with it in a named order.

    Step k of a longer chain needs as many layers as a chain of k steps.  Proofs: docs/theory.md.
    """
    if mask == "none":
        return next(layers for layers in itertools.count() if 3**layers >= 4 * steps + 1)
    assert isinstance(order, str), "of an explicit order only the range between both formulas is known"
    return next(layers for layers in itertools.count(1) if 2 ** (layers - 1) >= steps + 1)


def single_target_plan(order):
    """A plan of 1 + ⌈log₂(D + 1)⌉ layers with at most one target per position, causal in any order.

    In the first layer every second token reads the first token of its pair, so that it has a whole pair.  After that,
    number the pairs in binary: after layer t, the latest position of a block of 2^{t-1} pairs (2^{t-1}·b and on) has
    the whole block.  Of two neighbouring blocks 2b and 2b + 1 the later one reads the other; block 1 is read by the
    query, which so doubles its reach in every layer.
    """
    steps = len(order)
    moment = {pair: time for time, pair in enumerate(order)}
    plan = [[(i - 1,) if i and i % 2 == 0 else () for i in range(2 * steps + 1)]]
    latest = {pair: pair for pair in moment}
    while latest:
        targets = [()] * (2 * steps + 1)
        targets[0] = (2 * latest.pop(1),)
        joined = {}
        for block in {half // 2 for half in latest}:
            halves = (latest[half] for half in (2 * block, 2 * block + 1) if half in latest)
            *earlier, joined[block] = sorted(halves, key=moment.__getitem__)
            targets[2 * joined[block]] = tuple(2 * pair for pair in earlier)
        plan.append(targets)
        latest = joined
    return plan
