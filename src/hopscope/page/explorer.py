"""What explorer and circuit player show: written by measures into the run's folder, read again without torch.

`explored` and `circuit` return arrays by name, `about` among them: JSON as bytes.  A measure saves them as
`explorer-MEMBER` or `circuit-MEMBER` and gives a row with that member, the metric `explorer` or `circuit`,
and the file `explorer-MEMBER.about`.
"""

import base64
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hopscope.circuits.reader import Reading
    from hopscope.models.transformer import Transformer
    from hopscope.runs import Evidence, RunFolder
    from hopscope.tasks import Batch, Task

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

EXPLORER, CIRCUIT = "explorer", "circuit"
"""Metrics of the rows whose files hold what these functions return."""

SAMPLES, CASES = 3, 256
"""Samples that the explorer shows, and held-out ones by which the curves of a circuit are measured."""

MOST_CHECKPOINTS, MOST_OTHERS, MOST_MODELS, MOST_CIRCUITS = 16, 4, 6, 6
"""On a page: checkpoints of the first model, and of others; models; circuits."""

MOST_CHARACTERS = 700_000
"""Of patterns and weights on a page, as text: with its charts' library a page stays below 2 MB."""

_SIZES = ("layers", "heads", "head_size", "width", "mlp_size", "activation", "norm", "causal", "length", "input_size",
          "output_size")  # fmt: skip
_LOSSES = (
    " Held-out loss of the model: {full:.3f}. If all attention follows only the rules of the circuit: {rules:.3f} (at "
    "most {threshold:.3f} is allowed). Without the circuit: {complement:.3f}."
)
_PATTERN = "blocks.{}.attn.hook_pattern"


# Written by measures.


def explored(ensemble: "Transformer", task: "Task", member: int = 0, samples: int = SAMPLES) -> Arrays:
    """What the explorer shows of one member (counted from 0) at a checkpoint, on so many held-out samples.

    Returns:
        `about` (JSON: shape of the model, how tokens and rows are called), `inputs`, `targets` (-1: nothing is asked),
        `patterns` `[sample, layer, head, query, key]` (255 is attention 1), `predictions` `[sample, readout, output]`,
        and `costs` `[layer, head]`: by how much the loss on these samples rises without a head.
    """
    from hopscope.circuits.interventions import AblateHead
    from hopscope.tasks import counted

    model = ensemble.select([member])
    batch, words, _ = _worked(task, samples, model.config.causal)
    config, found, targets = model.config, model.cache(batch.inputs), batch.targets[0]
    layers, heads, predictions = range(config.layers), range(config.heads), found["predictions"]

    def loss(predictions: Any) -> float:
        return float(task.parts(predictions, batch)["loss"])

    def cost(layer: int, head: int) -> float:
        without = model.intervene(batch, AblateHead(layer=layer, heads=(head,), by="zero"))
        return loss(without) - loss(predictions)

    if not targets.is_floating_point():
        targets = targets.where(counted(batch)[0], -1)
    shape = {name: getattr(config, name) for name in _SIZES} | {"inputs": config.input_kind}
    codes = [*config.position_codes] if config.position_count else []
    shape |= {"readout": [*config.readout_positions], "codes": codes}
    layout = [[name, [*shape]] for name, _, _, shape in model.layout]
    return {
        "about": _json({"shape": {"config": shape, "layout": layout}, **_told(task), "roles": words}),
        "inputs": batch.inputs[0].cpu().numpy(),
        "targets": targets.cpu().numpy(),
        "patterns": np.stack([_bytes(found[_PATTERN.format(layer)][0]) for layer in layers], 1),
        "predictions": predictions[0].cpu().numpy().astype(np.float32),
        "costs": np.array([[cost(layer, head) for head in heads] for layer in layers]),
    }


def circuit(reading: "Reading", models: "Sequence[tuple[int, Transformer]]", task: "Task") -> Arrays:
    """A circuit that was read, for the player.

    Args:
        reading: of the last of the models.
        models: training step and single model at each checkpoint that the player shows.
        task: that they were trained on.

    Returns:
        `about` (JSON: verdict, losses, their curves, paths in words with their attention at each checkpoint, columns,
        and the tokens of a worked example), and `maps` `[checkpoint, head, query, key]` of the heads with a path.
    """
    from hopscope.circuits.history import formation
    from hopscope.circuits.rules import patterns, said
    from hopscope.tasks import held_out, losses

    config, heads, maps = models[-1][1].config, reading.circuit.heads, list[Array]()
    curves: dict[str, list[float]] = {}
    sites = [_PATTERN.format(layer) for layer in {layer for layer, _ in heads}]
    (batch, (roles,), grammar), held = _worked(task, 1, config.causal), held_out(task, CASES)

    def watched() -> "Iterator[tuple[int, Transformer]]":
        for step, model in models:
            found = model.cache(batch.inputs[0], sites)
            maps.append(np.stack([_bytes(found[_PATTERN.format(layer)][0, head]) for layer, head in heads]))
            for name, loss in losses(task, model(held.inputs[0])[None].detach(), held).items():
                name = re.sub(r"^step_(?=\d+$)", "x_", name.removeprefix("loss_"))
                curves.setdefault(name, []).append(round(float(loss), 4))
            yield step, model

    pairs = formation(reading.circuit, watched(), task) if heads else ()
    formed = {(path.layer, path.head, path.query): shares for path, shares in pairs}
    paths = []
    for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True):
        shares, cells = formed.get((path.layer, path.head, path.query), {}), list[list[int]]()
        if path.rule.kind not in ("learned", "history"):
            keys = patterns(path.rule, grammar.batch, grammar.causal)[0][0, 0]
            rows = grammar.rows[grammar.roles.index(path.roles)][0]
            cells = [[row, key] for row, key in (keys > 0).nonzero().tolist() if rows[row]]
        removed = {mode: loss if math.isfinite(loss) else None for mode, loss in evidence.removed.items()}
        paths.append({
            "layer": path.layer, "head": path.head, "query": path.query, "rule": said(path.rule), "cells": cells,
            "targets": _targets(path), "attention": [round(shares[step], 4) for step, _ in models] if shares else [],
            "mean_attention": round(evidence.mean_attention, 4), "needed_for": evidence.needed_for, "removed": removed,
            "carries": [name for name, rise in evidence.carries.items() if rise >= reading.least_effect],
            "uses": [use.model_dump() for use in evidence.composition if math.isfinite(use.rise)],
        })  # fmt: skip
    chain = batch.roles["chain"][0, 0].tolist() if "chain" in batch.roles else [-1] * len(roles)
    told = zip(roles, _labels(task, batch), chain, strict=True)
    tokens = [{"role": role, "label": label, "chain": own} for role, label, own in told]
    numbers = {role: int(next(filter(str.isdecimal, role.split()), 0)) for role in roles}
    about = {name: getattr(reading, name) for name in ("verdict", "learned", "threshold", "loss", "random")}
    learned = {re.sub(r"^(?:step_)?(?=\d+$)", "x_", name) for name in reading.learned}
    about |= {
        "curves": {name: each for name, each in curves.items() if name in learned and np.isfinite(each).all()},
        "layers": config.layers, "heads": config.heads, "columns": sorted(numbers, key=numbers.__getitem__),
        "tokens": tokens,
        "readout": [*dict.fromkeys(roles[place] for place in config.readout_positions)], "paths": paths,
        "steps": [step for step, _ in models], "mapped": [f"{layer}.{head}" for layer, head in heads],
    }  # fmt: skip
    return {"about": _json(about), "maps": np.array(maps, np.uint8)}


def _worked(task: "Task", samples: int, causal: bool) -> "tuple[Batch, list[list[str]], Any]":
    # Some held-out samples, what each of their positions is in words, and the rules on them.
    import torch

    from hopscope.circuits.grammar import Grammar, Rows
    from hopscope.tasks import held_out

    every = held_out(task, samples)
    count = every.inputs.shape[1]
    batch = every.take(torch.linspace(0, count - 1, samples).long()) if count > samples else every
    grammar = Grammar(task, Rows.drawn(task, 0, "cpu"), batch, causal=causal)
    of = [grammar.words(roles) for roles in grammar.roles]
    rows = grammar.rows.int().argmax(0)  # [sample, position]
    return batch, [[of[role] for role in sample] for sample in rows.tolist()], grammar


def _bytes(shares: Any) -> Array:
    return np.asarray((255 * shares.cpu()).round().numpy(), np.uint8)


def _told(task: "Task") -> dict[str, Any]:
    # How a task's tokens and answers are written.
    shape, words = task.shape(), task.words
    write = (words() if callable(words) else words).get("token", str)
    count = max(shape.input_size, shape.output_size) if shape.inputs == "tokens" else 0
    size = shape.input_size - shape.position_size
    symbols = shape.inputs == shape.outputs == "vectors" and shape.output_size % size == 0

    def word(token: int) -> str:
        try:
            return str(write(token))
        except (IndexError, KeyError, ValueError):
            return str(token)

    return {"outputs": shape.outputs, "tokens": [*map(word, range(count))], "symbol_size": size if symbols else 0,
            "parts": [*map(str, getattr(task, "asked", ()))] if symbols else []}  # fmt: skip


def _labels(task: "Task", batch: "Batch") -> list[str]:
    # What each position of the first sample holds: its token, or a letter for its symbol, as the explorer names it.
    told, known = _told(task), dict[tuple[float, ...], int]()
    if told["tokens"]:
        return [told["tokens"][token] for token in batch.inputs[0, 0].tolist()]
    size = task.shape().input_size - task.shape().position_size
    numbers = [known.setdefault(tuple(row[:size]), len(known)) for row in batch.inputs[0, 0].tolist()]
    return [chr(ord("A") + each % 26) + (str(each // 26) if each > 25 else "") for each in numbers]


def _targets(path: Any) -> list[dict[str, Any]]:
    # What a path reads, in words, each with its rule and its share of the attention.
    from hopscope.circuits.rules import said

    two = path.rule.kind == "two_targets"
    rules = [path.rule.first, path.rule.second] if two else [path.rule]
    shares = [path.rule.share, 1.0 - path.rule.share] if two else [1.0]
    words = path.target.split(" + ") if path.target else []
    words = words[::-1] if two and rules[0].kind == "identity" else words
    told = zip(words, rules, shares, strict=True) if len(words) == len(rules) else ()
    return [{"words": word, "every": word.startswith("all "), "rule": said(rule), "share": round(share, 2)}
            for word, rule, share in told]  # fmt: skip


def _json(value: Any) -> Array:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=list)
    return np.frombuffer(text.encode(), np.uint8)


# Read by the page.


def models(run: "RunFolder", evidence: "Evidence") -> list[dict[str, Any]]:
    """What the explorer's script is given of each model; weights where they fit, so that it can compute any input."""
    files, found, left = _files(evidence, EXPLORER), list[dict[str, Any]](), MOST_CHARACTERS
    begun = [unit for unit in run.units if unit.steps]
    units = {each.member: (unit, at) for unit in begun for at, each in enumerate(unit.members)}
    # Members whose loss is lowest come first.
    known = files and "loss" in evidence
    losses = evidence.last("loss", measure="training").dropna().to_dict() if known else {}
    order = sorted(files, key=lambda member: (losses.get(member, math.inf), member))
    first = {evidence.configurations[member]: member for member in reversed(order)}
    for at, member in enumerate([*dict.fromkeys([*reversed(first.values()), *order])][:MOST_MODELS]):
        steps = spread(sorted(files[member]), MOST_OTHERS if at else MOST_CHECKPOINTS)
        every = [(step, _arrays(evidence, files[member][step], f"{EXPLORER}-{member}")) for step in steps]
        # A member may overflow at a checkpoint, and be seen to have diverged a step later.
        arrays = {step: own for step, own in every if all(np.isfinite(each).all() for each in own.values())}
        if not (steps := [*arrays]):
            continue
        last, (unit, place) = arrays[steps[-1]], units.get(member, (None, 0))
        told, live, room = about(last), [*unit.steps] if unit else [], left if at else 0.6 * left
        layout = told["shape"]["layout"]
        size = sum(math.prod(shape) for _, shape in layout) * 8 / 3
        whole, checkpoints = {*steps} <= {*live} and size * len(steps) <= room, list[dict[str, Any]]()
        for step in steps:
            entry: dict[str, Any] = {"step": step, "costs": _rounded(arrays[step]["costs"])}
            if unit and (whole or (step == steps[-1] and step in live and 2 * size <= room)):
                weights = unit.weights(step)
                flat = np.concatenate([np.asarray(weights[name][place]).ravel() for name, _ in layout])
                entry["weights"] = _text(flat.astype("<f2").tobytes())
            if not whole:
                entry["patterns"] = packed(arrays[step]["patterns"])
                entry["predictions"] = _rounded(arrays[step]["predictions"])
            checkpoints.append(entry)
        while len(json.dumps(checkpoints)) > room:
            del checkpoints[0]
        left -= len(json.dumps(checkpoints))
        told |= {"member": member, "name": _name(evidence, member), "checkpoints": checkpoints}
        told |= {name: _rounded(last[name]) for name in ("inputs", "targets")}
        found += [told] if checkpoints else []
    return found


def circuits(evidence: "Evidence") -> list[dict[str, Any]]:
    """What the player's script is given of each circuit, first the smallest of those with most to learn."""
    found = []
    for member, steps in _files(evidence, CIRCUIT).items():
        arrays = _arrays(evidence, steps[max(steps)], f"{CIRCUIT}-{member}")
        own = about(arrays)
        loss, threshold = own["loss"], own["threshold"]
        words = "The circuit was read." if own["verdict"] == "read" else f"Verdict: {own['verdict']}."
        words += _LOSSES.format(**loss, threshold=threshold) if "rules" in loss else ""
        told = {"name": _name(evidence, member), "words": words, "maps": packed(arrays["maps"])}
        fails = loss.get("rules", math.inf) > threshold
        found.append(((fails, -len(own["learned"]), len(own["paths"]), member), {**own, **told}))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])][:MOST_CIRCUITS]


def about(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The JSON among arrays that `explored` or `circuit` returned."""
    found: dict[str, Any] = json.loads(arrays["about"].tobytes())
    return found


def spread(values: Sequence[int], count: int) -> list[int]:
    """So many of some values, evenly spread from the first to the last; of one alone the last."""
    n, last = min(count, len(values)), len(values) - 1
    return [values[last - round(at * last / max(1, n - 1))] for at in reversed(range(n))]


def packed(array: Array) -> str:
    """Bytes of an array, deflated, as text."""
    return _text(zlib.compress(np.ascontiguousarray(array).tobytes(), 9))


def _name(evidence: "Evidence", member: int) -> str:
    several = f"{evidence.configurations[member]}, " if len({*evidence.configurations.values()}) > 1 else ""
    return f"{several}seed {evidence.seeds[member]}"


def _files(evidence: "Evidence", metric: str) -> dict[int, dict[int, str]]:
    # Member → training step → the file that rows of a metric point to.
    found: dict[int, dict[int, str]] = {}
    if metric in evidence:
        rows = evidence.rows(metric, split=None).dropna(subset=["member", "file"])
        for member, step, file in zip(rows["member"], rows["step"], rows["file"], strict=True):
            found.setdefault(int(member), {})[int(step)] = str(file)
    return found


def _arrays(evidence: "Evidence", file: str, name: str) -> Arrays:
    # The arrays of one saved value, without its name in front.
    found = evidence.arrays(file)
    return {key.removeprefix(f"{name}."): each for key, each in found.items() if key.startswith(f"{name}.")}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _rounded(array: Array) -> Any:
    return (np.round(array.astype(np.float64), 4) if array.dtype.kind == "f" else array).tolist()
