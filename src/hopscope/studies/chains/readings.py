"""Every member's circuit is read by both proofs and followed back through training.

All rows are held-out and stand at the last training step, but attention, which stands at its checkpoint.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import combinations, starmap
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import Crossing, earliest, first_crossing, last_crossing, latest
from hopscope.studies.chains.circuits import PREFIX, Proof
from hopscope.studies.chains.comparisons import DISTANCES, circuits_of, plain_reader
from hopscope.studies.chains.evidence import LEARNED
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.circuits.circuit import Circuit, Path
    from hopscope.circuits.reader import Reading
    from hopscope.models.transformer import Transformer

Rows = Iterator[dict[str, Any]]
Models = list[tuple[int, "Transformer"]]

FORMED, SEQUENCES, UNSEEN = 0.5, 32, 256
"""Mean attention of a path that has formed; sequences on which paths are followed; sequences that play no part in
admitting a circuit."""


@measure(name="circuit")
def circuits(context: Context) -> Rows:
    """The circuit of every member by both proofs, how it formed, and what it reaches on sequences of no search.

    A step of the chain is part `step_k`; a path has a layer, a head, and part `rows → what they read`.  A time is four
    metrics: `X` (1 if it happened), `X_at`, `X_at_low`, `X_at_high`; what never happened has the first, which is 0, and
    the third, until which it was watched for.

    * `learned`, `learned_all`, `was_read`, `threshold`, `circuit_loss` (parts `full`, `rules`, `recomputed`,
      `complement`, `random_circuits` …), `heads`, `heads_needed` (one less where two could be one), `paths`,
      `minimal_circuits`, `first_read_links_pair`;
    * of each path `mean_attention`, `loss_without_MODE`, `to_one_token`, `needed_for`, `rise_if_exchanged`; `attention`
      at each checkpoint; time `formed`, also of a step: when the last of its reads had;
    * times `fell` and `fell_for_good` of the loss of a step under one half;
    * `unseen_loss`, and `unseen_loss_without` a read of a single token;
    * where members are read again, `readings` and `reread_distance`; of paths `loss_if_ablated` and its bounds.

    Members that are trained on samples of another seed are read by one proof, once.  The file of `was_read` has all
    readings as JSON, that of `circuit` what the page's player shows.
    """
    gone = context.unit.diverged_at(context.step or 0)

    @cache
    def ensembles() -> "list[tuple[int, Transformer]]":
        return [(step, context.at(context.unit, step).ensemble) for step in context.unit.steps]

    for place, member in enumerate(context.members):
        if gone[place] is None:
            yield from context.part(f"member-{member}", partial(_of_member, context, ensembles, place))
            continue
        flags = ["learned_all", "was_read", "rules_was_read"]
        yield from ({"metric": name, "member": member, "value": None} for name in flags)


def _of_member(context: Context, ensembles: Callable[[], Models], place: int) -> Rows:
    from hopscope.circuits.history import formation
    from hopscope.circuits.reader import READ, read
    from hopscope.page.explorer import MOST_CHECKPOINTS, circuit, spread

    options, own, task = context.options, context.unit.members[place], context.task
    models = [(step, each.member(place)) for step, each in ensembles()]
    steps, model, number = [step for step, _ in models], models[-1][1], own.member
    proofs: Sequence[Proof] = ("both", "rules") if own.init_seed == own.data_seed else ("both",)
    readings = {proof: [read(model, task, options.reader(proof))] for proof in proofs}
    first = readings["both"][0]
    whole = len(first.learned) == options.steps
    if whole and options.read_again and len(proofs) == 2:
        for proof, found in readings.items():
            configs = [options.reader(proof).again(1 + again) for again in range(options.read_again)]
            found += [read(model, task, config) for config in configs]
    texts = {
        f"{proof}-{at}": _bytes(each) for proof, found in readings.items() for at, each in enumerate(found)
    }
    row = partial(_row, number, context.save(f"reading-{number}", texts))
    if first.circuit.paths:
        shown = spread(steps, MOST_CHECKPOINTS)
        player = circuit(first, [each for each in models if each[0] in shown], task)
        yield _row(number, context.save(f"circuit-{number}", player), "circuit", 1.0)
    for step in range(1, options.steps + 1):
        yield row("learned", f"step_{step}" in first.learned, part=f"step_{step}")
        curve = context.evidence.curve(f"loss_step_{step}")[number].dropna()
        points = [*map(float, curve.index)], curve.tolist()
        for event, crossing in (("fell", first_crossing), ("fell_for_good", last_crossing)):
            yield from time_rows(row, event, crossing(*points, LEARNED, rising=False), part=f"step_{step}")
    yield row("learned_all", whole)
    yield row("threshold", first.threshold)
    for proof in proofs:
        reading, prefix = readings[proof][0], PREFIX[proof]
        yield row(f"{prefix}was_read", reading.verdict == READ)
        yield from _rows_of_reading(partial(_prefixed, row, prefix), reading, proof, options.plateau)
        formed = formation(reading.circuit, models, task, SEQUENCES) if reading.circuit.paths else []
        yield from _rows_of_formation(partial(_prefixed, row, prefix), reading, formed, steps, options.steps)
        if len(proofs) == 2 and reading.learned:
            yield from _rows_unseen(partial(_prefixed, row, prefix), context, model, reading)
    if len(readings["both"]) > 1:
        yield row("readings", len(readings["both"]))
        for proof, found in readings.items():
            sets = [circuits_of(each) for each in found]
            for of, apart in DISTANCES.items():
                value = fmean(starmap(apart, combinations(sets, 2)))
                yield row(f"{PREFIX[proof]}reread{of}_distance", value)
        yield from _rows_of_bounds(row, context, model, first.circuit)


def _bytes(reading: "Reading") -> Any:
    import numpy as np

    return np.frombuffer(reading.model_dump_json().encode(), np.uint8)


def _row(member: int, file: str, metric: str, value: float | None, **where: Any) -> dict[str, Any]:
    known = None if value is None else float(value)
    return {"metric": metric, "value": known, "member": member, "file": file, **where}


def _prefixed(row: Callable[..., Any], prefix: str, metric: str, value: Any, **where: Any) -> dict[str, Any]:
    return dict(row(f"{prefix}{metric}", value, **where))


def time_rows(row: Callable[..., Any], event: str, found: Crossing, **where: Any) -> Rows:
    """A time as rows; see `circuits`."""
    yield row(event, found.time is not None, **where)
    if found.time is None:
        yield row(f"{event}_at_low", found.censored_at, **where)
        return
    for end, value in (("at", found.time), ("at_low", found.low), ("at_high", found.high)):
        yield row(f"{event}_{end}", value, **where)


def one_token(path: "Path") -> bool:
    """Whether a path reads a single token: not all tokens of a role alike, and no mixture."""
    return bool(path.target) and not path.target.startswith("all ") and " + " not in path.target


def _where(path: "Path") -> dict[str, Any]:
    return {"layer": path.layer, "head": path.head, "part": f"{path.query} → {path.read}"}


def _number(target: str | None) -> int | None:
    found = re.search(r"_(\d+)$", target or "")
    return None if found is None else int(found[1])


def _rows_of_reading(row: Callable[..., Any], reading: "Reading", proof: Proof, plateau: float) -> Rows:
    paths = reading.circuit.paths
    if not paths:
        return
    losses = {name: reading.loss[name] for name in ("full", "rules", "recomputed", "complement")}
    losses |= {"worst_recomputed": reading.worst * plateau}
    if reading.random:
        ends = {"": fmean(reading.random), "_low": min(reading.random), "_high": max(reading.random)}
        losses |= {f"random_circuits{end}": loss for end, loss in ends.items()}
    for part, loss in losses.items():
        yield row("circuit_loss", loss, part=part)
    sharp = [path for path in paths if one_token(path)]
    # The paper counts heads that read single tokens; the other way every head with a path.
    heads = len({(path.layer, path.head) for path in (sharp if proof == "rules" else paths)})
    yield row("reading_heads" if proof == "rules" else "heads", heads)
    yield row("heads_needed", heads - min(1, len(reading.merges)))
    yield row("paths", len(paths))
    yield row("minimal_circuits", len(reading.minimal))
    of_first = [path for path in sharp if (path.layer, path.head) == (sharp[0].layer, sharp[0].head)]
    yield row("first_read_links_pair", any(map(_links_a_pair, of_first)))
    for path, evidence in zip(paths, reading.evidence, strict=True):
        at = partial(row, **_where(path))
        yield at("to_one_token", one_token(path))
        yield at("mean_attention", evidence.mean_attention)
        for mode, loss in evidence.removed.items():
            yield at(f"loss_without_{mode}", loss)
        if (needed := _number(evidence.needed_for)) is not None:
            yield at("needed_for", needed)
        for thing, rise in evidence.carries.items():
            part = f"{path.query}: {thing}"
            yield row("rise_if_exchanged", rise, layer=path.layer, head=path.head, part=part)


def _links_a_pair(path: "Path") -> bool:
    query, target = path.query.split(), path.target.split()
    pair = len(query) == len(target) == 2 and query[1] == target[1]
    return pair and {query[0], target[0]} == {"first", "second"}


def _rows_of_formation(
    row: Callable[..., Any], reading: "Reading", formed: "list[tuple[Path, dict[int, float]]]",
    steps: Sequence[int], length: int,
) -> Rows:  # fmt: skip
    from hopscope.circuits.reader import READ

    needed = {
        (path.layer, path.head, path.query): _number(evidence.needed_for)
        for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True)
    }
    of_steps: dict[int | None, dict[str, list[Crossing]]] = {}
    for path, attention in formed:
        for step in steps:
            yield row("attention", attention[step], step=step, **_where(path))
        crossing = first_crossing(steps, [attention[step] for step in steps], FORMED)
        yield from time_rows(row, "formed", crossing, **_where(path))
        if one_token(
            path
        ):  # rows that read all tokens of a role do so by position, many from the first step on
            of = of_steps.setdefault(needed[path.layer, path.head, path.query], {})
            of.setdefault(path.read, []).append(crossing)
    for step in range(1, length + 1) if reading.verdict == READ else ():
        if f"step_{step}" not in reading.learned:
            yield from time_rows(
                row, "formed", Crossing(None, None, None, float(steps[-1])), part=f"step_{step}"
            )
        elif step in of_steps:  # several heads may do one read: it has formed when the first of them has
            hop = latest([earliest(times) for times in of_steps[step].values()])
            yield from time_rows(row, "formed", hop, part=f"step_{step}")


def _rows_unseen(row: Callable[..., Any], context: Context, model: "Transformer", reading: "Reading") -> Rows:
    import torch

    from hopscope.circuits.execution import Execution, Mode, Pass, Slot
    from hopscope.circuits.grammar import Grammar
    from hopscope.circuits.grammar import Rows as Roles
    from hopscope.circuits.reader import READ
    from hopscope.circuits.rules import Learned, Rule, Uniform
    from hopscope.tasks import draw, losses

    task, (seeds, roles) = context.task, (torch.tensor([0]), Roles.drawn(context.task, 0, "cpu"))

    def execution(use: str, step: int, samples: int) -> Execution:
        batch = draw(task, seeds, use, step, samples)
        return Execution(model, Grammar(task, roles, batch, causal=model.config.causal))

    def ruled(circuit: "Circuit", on: Execution, mode: Mode) -> Pass:  # rows without a rule read uniformly
        rules: dict[Slot, Rule] = {
            slot: Uniform() if isinstance(rule, Learned) else rule for slot, rule in circuit.rules(on).items()
        }
        return on.under(on.clean._replace(mode=mode), rules)

    def loss(passed: Pass, on: Execution) -> float:
        found = losses(task, passed.predictions, on.grammar.batch)
        return fmean(float(found[f"loss_{name}"]) for name in reading.learned)

    circuit = reading.circuit
    if reading.verdict != READ:  # the one that came nearest to the threshold
        check = execution("circuit", 1, 4 * 48)
        every = [each for each, _ in reading.minimal]
        circuit = min(every, key=lambda each: loss(ruled(each, check, "rules"), check))
    on = execution(*_UNSEEN_DRAWS, UNSEEN)
    modes: tuple[Mode, ...] = ("rules", "recomputed")
    passed = {mode: ruled(circuit, on, mode) for mode in modes}
    bases: dict[str, Pass] = {"rules": passed["rules"], "clean": on.clean, "recomputed": passed["recomputed"]}
    yield row("unseen_loss", loss(on.clean, on), part="full")
    for mode, each in passed.items():
        yield row("unseen_loss", loss(each, on), part=mode)
    sharp = [path for path in circuit.paths if one_token(path)]
    groups = [([path], {**_where(path)}) for path in sharp]
    if sharp:
        first = [path for path in sharp if (path.layer, path.head) == (sharp[0].layer, sharp[0].head)]
        groups.append((first, {"part": "first head"}))
    for paths, where in groups:
        gone: dict[Slot, Rule] = {
            (path.layer, path.head, on.grammar.roles.index(path.roles)): Uniform() for path in paths
        }
        for name, base in bases.items():
            value = loss(on.under(base, gone), on)
            yield row("unseen_loss_without", value, **{**where, "part": f"{name}: {where['part']}"})


_UNSEEN_DRAWS = ("circuit", 5)  # use and step of samples that play no part in admitting a circuit


def _rows_of_bounds(
    row: Callable[..., Any], context: Context, model: "Transformer", circuit: "Circuit"
) -> Rows:
    for each in plain_reader(context, model).bounds(circuit):
        at = partial(row, **_where(each.path))
        yield at("loss_if_ablated", each.removed)
        yield at("loss_if_layer_ablated", each.layer)
        if each.others:
            ends = {"": median(each.others), "_low": min(each.others), "_high": max(each.others)}
            for end, value in ends.items():
                yield at(f"loss_if_others_ablated{end}", value)
