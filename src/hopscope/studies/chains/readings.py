"""Every member's circuit is read by both proofs, followed back through training, and set beside those of others.

All rows are held-out and stand at the last training step, but attention, which stands at its checkpoint.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, permutations, starmap
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hopscope.claims import Samples
from hopscope.claims.crossings import Crossing, earliest, first_crossing, last_crossing
from hopscope.studies.chains.circuits import PREFIX, Proof
from hopscope.studies.chains.evidence import LEARNED, of_plateau
from hopscope.studies.chains.measures import Rows
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.circuits.circuit import Circuit, Path
    from hopscope.circuits.execution import Pass
    from hopscope.circuits.reader import Reading
    from hopscope.models.transformer import Transformer

    Models = list[tuple[int, Transformer]]

Circuits = frozenset[frozenset[Any]]
"""A set of circuits, of each its paths."""

FORMED, SEQUENCES, UNSEEN = 0.5, 32, 256
"""Mean attention of a path that has formed; sequences on which paths are followed; sequences that play no part in
admitting a circuit."""


@measure(name="circuit")
def circuits(context: Context) -> Rows:
    """The circuit of every member by both proofs, how it formed, and what it reaches on sequences of no search.

    A step of the chain is part `step_k`; a path has a layer, a head, and part `rows → what they read`.  A time is four
    metrics: `X` (1 if it happened), `X_at`, `X_at_low`, `X_at_high`; what never happened has the first, which is 0, and
    the third, until which it was watched for.

    * `learned`, `learned_all`; by proof `was_read`, `circuit_loss` (parts `full`, `rules`, `recomputed`, `complement`,
      `random_circuits`), `heads` (of `rules_reading_heads`: those that read single tokens), `heads_needed` (one less
      where two could be one), `paths`, `minimal_circuits`, `first_read_links_pair`;
    * of each path `mean_attention`, `loss_without_MODE`, `to_one_token`, `needed_for`; `attention` at each checkpoint;
      time `formed`, also of a step: when the last of its reads had;
    * times `fell` and `fell_for_good` of the loss of a step under one half;
    * by the rules `unseen_loss`, and `unseen_loss_without` a read of a single token;
    * where members are read again, `reread_graph_distance`.

    Members that are trained on samples of another seed are read by one proof, once.  The file of `was_read` has all
    readings as JSON, that of `circuit` what the page's player shows.
    """
    gone = context.unit.diverged_at(context.step or 0)

    @cache
    def ensembles() -> "Models":
        return [(step, context.at(context.unit, step).ensemble) for step in context.unit.steps]

    for place, member in enumerate(context.members):
        if gone[place] is None:
            yield from context.part(f"member-{member}", partial(_of_member, context, ensembles, place))
        else:
            yield from numbers(dict.fromkeys(["learned_all", "was_read", "rules_was_read"]), member=member)


def numbers(of: Mapping[str, Any], **where: Any) -> Rows:
    """Metric → value, of one place, as rows."""
    return ({"metric": metric, "value": value, **where} for metric, value in of.items())


def time_rows(event: str, found: Crossing, **where: Any) -> Rows:
    """A time as rows; see `circuits`."""
    ends = {"": found.time is not None, "_at": found.time, "_at_low": found.low, "_at_high": found.high}
    if found.time is None:
        ends = {"": False, "_at_low": found.censored_at}
    return numbers({f"{event}{end}": value for end, value in ends.items()}, **where)


def _of_member(context: Context, ensembles: "Callable[[], Models]", place: int) -> Rows:
    import numpy as np

    from hopscope.circuits.reader import READ, read
    from hopscope.page.explorer import MOST_CHECKPOINTS, circuit, spread

    options, own, task = context.options, context.unit.members[place], context.task
    models = [(step, each.member(place)) for step, each in ensembles()]
    model, member = models[-1][1], own.member
    proofs: Sequence[Proof] = ("both", "rules") if own.init_seed == own.data_seed else ("both",)
    readings = {proof: [read(model, task, options.reader(proof))] for proof in proofs}
    first = readings["both"][0]
    whole = len(first.learned) == options.steps
    for proof, of in readings.items() if whole and len(proofs) == 2 else ():
        of += [read(model, task, options.reader(proof).again(1 + at)) for at in range(options.read_again)]
    every = [(f"{proof}-{at}", each) for proof, of in readings.items() for at, each in enumerate(of)]
    texts = {name: np.frombuffer(each.model_dump_json().encode(), np.uint8) for name, each in every}
    same = {"member": member, "file": context.save(f"reading-{member}", texts)}
    if first.circuit.paths:
        shown = spread(context.unit.steps, MOST_CHECKPOINTS)
        player = circuit(first, [each for each in models if each[0] in shown], task)
        file = context.save(f"circuit-{member}", player)
        yield {"metric": "circuit", "value": 1.0, "member": member, "file": file}
    bound = of_plateau(LEARNED, options.chains)
    for part in task.asked:  # type: ignore[attr-defined]
        where = {"part": part, **same}
        yield {"metric": "learned", "value": part in first.learned, **where}
        curve = context.evidence.curve(f"loss_{part}")[member].dropna()
        points = [*map(float, curve.index)], curve.tolist()
        for event, crossing in (("fell", first_crossing), ("fell_for_good", last_crossing)):
            yield from time_rows(event, crossing(*points, bound, rising=False), **where)
    yield {"metric": "learned_all", "value": whole, **same}
    for proof, of in readings.items():
        found: list[dict[str, Any]] = [{"metric": "was_read", "value": of[0].verdict == READ}]
        if of[0].circuit.paths:
            found += [*_of_circuit(of[0], proof), *_of_formation(of[0], models, context)]
        if len(proofs) == 2 and of[0].learned:
            found += _unseen(context, model, of[0])
        if len(of) > 1:
            apart = fmean(starmap(path_distance, combinations(map(graphs_of, of), 2)))
            found += [{"metric": "reread_graph_distance", "value": apart}]
        yield from ({**row, "metric": PREFIX[proof] + row["metric"], **same} for row in found)


def one_token(path: "Path") -> bool:
    """Whether a path reads a single token: not all tokens of a role alike, and no mixture."""
    return bool(path.target) and not path.target.startswith("all ") and " + " not in path.target


def _where(path: "Path") -> dict[str, Any]:
    return {"layer": path.layer, "head": path.head, "part": f"{path.query} → {path.read}"}


def _of_circuit(reading: "Reading", proof: Proof) -> Rows:
    paths, sharp = reading.circuit.paths, [*filter(one_token, reading.circuit.paths)]
    losses = reading.loss | ({"random_circuits": fmean(reading.random)} if reading.random else {})
    for part, loss in losses.items():
        yield {"metric": "circuit_loss", "part": part, "value": loss}
    # The paper counts heads that read single tokens; the other way every head with a path.
    heads = len({(path.layer, path.head) for path in (sharp if proof == "rules" else paths)})
    yield from numbers({
        "reading_heads" if proof == "rules" else "heads": heads,
        "heads_needed": heads - min(1, len(reading.merges)),
        "paths": len(paths),
        "minimal_circuits": len(reading.minimal),
        "first_read_links_pair": any(map(_links_a_pair, _of_first_head(sharp))),
    })  # fmt: skip
    for path, evidence in zip(paths, reading.evidence, strict=True):
        found = {"to_one_token": one_token(path), "mean_attention": evidence.mean_attention}
        found |= {f"loss_without_{mode}": loss for mode, loss in evidence.removed.items()}
        if evidence.needed_for is not None:
            found["needed_for"] = int(evidence.needed_for.removeprefix("step_"))
        yield from numbers(found, **_where(path))


def _of_first_head(paths: "Sequence[Path]") -> "list[Path]":
    return [path for path in paths if (path.layer, path.head) == (paths[0].layer, paths[0].head)]


def _links_a_pair(path: "Path") -> bool:
    query, target = path.query.split(), path.target.split()
    pair = len(query) == len(target) == 2 and query[1] == target[1]
    return pair and {query[0], target[0]} == {"first", "second"}


def _of_formation(reading: "Reading", models: "Models", context: Context) -> Rows:
    from hopscope.circuits.history import formation
    from hopscope.circuits.reader import READ

    pairs = zip(reading.circuit.paths, reading.evidence, strict=True)
    needed = {(path.layer, path.head, path.query): each.needed_for for path, each in pairs}
    of_steps = defaultdict[str | None, dict[tuple[str, str], list[Crossing]]](lambda: defaultdict(list))
    for path, attention in formation(reading.circuit, models, context.task, SEQUENCES):
        for step, value in attention.items():
            yield {"metric": "attention", "step": step, "value": value, **_where(path)}
        crossing = first_crossing([*attention], [*attention.values()], FORMED)
        yield from time_rows("formed", crossing, **_where(path))
        # Rows that read all tokens of a role do so by position, many from the first step on.
        if one_token(path):
            of_steps[needed[path.layer, path.head, path.query]][path.query, path.read].append(crossing)
    for part in context.task.asked if reading.verdict == READ else ():  # type: ignore[attr-defined]
        if part not in reading.learned:
            never = Crossing(None, None, None, float(models[-1][0]))
            yield from time_rows("formed", never, part=part)
        elif part in of_steps:  # several heads may do one read: it has formed when the first of them has
            first = [earliest(times) for times in of_steps[part].values()]
            hop = max(first, key=lambda each: math.inf if each.time is None else each.time)
            yield from time_rows("formed", hop, part=part)


def _unseen(context: Context, model: "Transformer", reading: "Reading") -> Rows:
    """Losses under the rules: of a member that was not read, those of the circuit nearest to the threshold."""
    import torch

    from hopscope.circuits.execution import Execution
    from hopscope.circuits.grammar import Grammar
    from hopscope.circuits.grammar import Rows as Roles
    from hopscope.circuits.reader import READ
    from hopscope.circuits.rules import Learned, Uniform
    from hopscope.tasks import draw, losses

    task, (seeds, roles) = context.task, (torch.tensor([0]), Roles.drawn(context.task, 0, "cpu"))

    def execution(step: int, samples: int) -> Execution:
        batch = draw(task, seeds, "circuit", step, samples)
        return Execution(model, Grammar(task, roles, batch, causal=model.config.causal))

    def ruled(circuit: "Circuit", on: Execution) -> "Pass":  # rows without a rule read uniformly
        rules = circuit.rules(on).items()
        return on.under(on.clean, {slot: Uniform() if rule == Learned() else rule for slot, rule in rules})

    def loss(passed: "Pass", on: Execution) -> float:
        found = losses(task, passed.predictions, on.grammar.batch)
        return fmean(float(found[f"loss_{name}"]) for name in reading.learned)

    circuit, on = reading.circuit, execution(5, UNSEEN)
    if reading.verdict != READ:
        check = execution(1, 4 * 48)
        every = [each for each, _ in reading.minimal]
        circuit = min(every, key=lambda each: loss(ruled(each, check), check))
    whole, sharp = ruled(circuit, on), [*filter(one_token, circuit.paths)]
    yield {"metric": "unseen_loss", "part": "rules", "value": loss(whole, on)}
    groups = [([path], _where(path)) for path in sharp]
    for paths, where in [*groups, (_of_first_head(sharp), {"part": "first head"})] if sharp else ():
        gone = [(path.layer, path.head, on.grammar.roles.index(path.roles)) for path in paths]
        value = loss(on.under(whole, dict.fromkeys(gone, Uniform())), on)
        yield {"metric": "unseen_loss_without", "value": value, **where, "part": f"rules: {where['part']}"}


# Circuits of several members, or of several readings of one, beside each other.


def graphs_of(reading: "Reading", by_layer: bool = False) -> Circuits:
    """The minimal circuits of a reading as graphs of reads: which rows read what, in which layer or in any.

    Heads are left out, because those of a layer have no order: two that do the same by another head do the same.
    """

    def read(path: "Path") -> Hashable:
        what = path.read if by_layer else path.target or path.rule.kind
        return path.layer if by_layer else None, path.query, what

    return frozenset(frozenset(map(read, circuit.paths)) for circuit, _ in reading.minimal)


def path_distance(one: Circuits, other: Circuits) -> float:
    """1 minus the share of paths that a circuit of one set has in common with the nearest one of the other set.

    The share is of the paths that either of the two has.  It is a mean over the circuits of each set, and over both.
    """

    def nearest(circuits: Circuits, others: Circuits) -> float:
        return fmean(
            max(len(each & other) / len(each | other) if each | other else 1.0 for other in others)
            for each in circuits
        )

    return 1.0 - (nearest(one, other) + nearest(other, one)) / 2.0


def reading_of(context: Context, file: str, member: int, proof: Proof = "both") -> "Reading":
    """The first reading of a member, from the file of the row `was_read`."""
    from hopscope.circuits.reader import Reading
    from hopscope.runs.checkpoint import load_checkpoint

    arrays, _ = load_checkpoint(context.run.path / file)
    return Reading.model_validate_json(arrays[f"reading-{member}.{proof}-0"].tobytes())


def farther(between: "pd.DataFrame", own: "pd.Series[float]", least: int, why_none: str) -> Samples:
    """How much farther each is from the others, on average, than its own number; `between` is `[one, other]`.

    One without a distance to some other is left out, the emptiest first.  They are resampled, as pairs share them.
    """
    import numpy as np

    from hopscope.claims.intervals import excess_interval

    known = own.dropna().index
    kept = between.reindex(index=known, columns=known).mask(np.eye(len(known), dtype=bool), 0.0)
    while kept.isna().any(axis=None):
        emptiest = kept.isna().sum(axis=1).idxmax()
        kept = kept.drop(index=emptiest, columns=emptiest)
    if len(kept) < least:
        return Samples([], unit="seed", note=why_none)
    alone = own[kept.index]
    beyond = (kept.sum(axis=1) / (len(kept) - 1) - alone).reindex(own.index)
    return Samples(beyond, unit="seed", interval=excess_interval(kept.to_numpy(), alone.to_numpy()))


@measure(when="run", needs=(circuits,))
def compared(context: Context) -> Rows:
    """The circuits of members beside each other.

    Metrics: `circuit_class`, a number that two members share if and only if their circuits do the same reads; where
    members were read again, `circuit_graph_distance` to each other one, part `member N`, by both proofs.
    """
    rows = [row for row in context.rows("circuit") if row["value"] is not None]
    files = {row["member"]: row["file"] for row in rows if row["metric"] == "was_read"}
    again = [row["member"] for row in rows if row["metric"] == "reread_graph_distance"]
    classes = dict[Hashable, int]()
    for member, file in files.items():
        if reads := reading_of(context, file, member).circuit.reads:
            number = classes.setdefault(reads, len(classes))
            yield {"metric": "circuit_class", "member": member, "value": number}
    for proof, prefix in PREFIX.items():
        sets = {member: graphs_of(reading_of(context, files[member], member, proof)) for member in again}
        for one, other in permutations(sets, 2):
            where = {"metric": f"{prefix}circuit_graph_distance", "member": one, "part": f"member {other}"}
            yield {**where, "value": path_distance(sets[one], sets[other])}
