"""Families of circuits: models whose rows read the same pairs, layer after layer."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from hopscope.claims import Samples
from hopscope.page import figures as charts
from hopscope.studies.chains import circuits as chains

if TYPE_CHECKING:
    from hopscope.runs import Evidence

_OWN = re.compile(r"(?<!all )(?:first|second) (\d+)")
# D, and the first so many seeds of it: from their circuits N23 was made, so they do not decide it.
_SEEN = 5, 16
_SHOWN, _WIDE = 3, 14  # seeds of a family that are named, letters in a line of a cell


def hops(read: str) -> set[str]:
    """What a path does along its own chain, in short: `link`, `q→2` (the query reads pair 2) or `2→3`."""
    row, _, target = read.partition(" → ")
    start = "q" if row.startswith("query") else row.rpartition(" ")[2]
    return {"link" if pair == start else f"{start}→{pair}" for pair in _OWN.findall(target)}


def _looks_ahead(hop: str) -> bool:
    """Whether a pair reads a later one of its own chain; N14 also counts reads of all tokens of a later role."""
    row, _, pair = hop.partition("→")
    return row.isdigit() and int(pair) > int(row)


def _layers(evidence: "Evidence") -> dict[int, defaultdict[int, set[str]]]:
    """Member that learned the whole chain and was read → layer → what its rows do."""
    read = chains.of_read(evidence, "both", "was_read")
    layers = {int(member): defaultdict[int, set[str]](set) for member in read.index[read == 1.0]}
    for place in chains.of_places(evidence, "mean_attention"):
        if place.member in layers and place.layer is not None:
            layers[place.member][place.layer] |= hops(place.part)
    return layers


def families(evidence: "Evidence") -> dict[tuple[tuple[str, ...], ...], list[int]]:
    """What the layers do in turn → members that learned the whole chain and were read so, the largest family first.

    Layers in which no row reads a pair of its own chain are left out: where a circuit waits is not counted.
    """
    found = defaultdict[tuple[tuple[str, ...], ...], list[int]](list)
    for member, own in _layers(evidence).items():
        # “link” first, then what the query reads, then what pairs read.
        done = (sorted(own[at], key=lambda hop: (hop[0].isdigit(), hop)) for at in sorted(own) if own[at])
        found[tuple(map(tuple, done))].append(member)
    return dict(sorted(found.items(), key=lambda family: (-len(family[1]), family[1])))


def ahead_and_rest(options: chains.ChainOptions, evidence: "Evidence") -> Samples:
    """By seed: how many different looks ahead there are, and the time from the first loss to the last."""
    every, fell, pairs = _layers(evidence), chains.times(evidence, "fell"), list[tuple[float, float]]()
    seen = {each for each in every if options.steps == _SEEN[0] and evidence.seeds[each] < _SEEN[1]}
    for member, own in every.items():
        if member in seen:
            continue
        first, last = (fell.get(chains.Place.of_step(member, step)) for step in (1, options.steps))
        if first is not None and last is not None and first.time is not None and last.time is not None:
            ahead = {hop for done in own.values() for hop in done if _looks_ahead(hop)}
            pairs.append((float(len(ahead)), last.time - first.time))
    none = "only circuits from which it was made" if seen and seen == {*every} else chains.NONE_READ
    return Samples(pairs, unit="seed", note="" if pairs else none, ranks=True)


def rows(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """A row for each layer of each family."""
    seeds = chains.rows_of(evidence, "was_read").set_index("member")["seed"]
    for layers, members in families(evidence).items():
        named = ", ".join(str(seeds[each]) for each in members[:_SHOWN]) + " …" * (len(members) > _SHOWN)
        label = f"{len(members)} seeds ({named})" if len(members) > 1 else f"seed {named}"
        for at, done in enumerate(layers, 1):
            ahead, words = sum(map(_looks_ahead, done)), wrap(" ".join(_joined(done)), _WIDE)
            yield {"family": label, "layer that reads": at, "value": ahead, "note": "|".join(words)}


def _joined(hops: Iterable[str]) -> list[str]:
    """Of each row, all that it does: `2→3` and `2→4` are `2→3,4`."""
    pairs = defaultdict[str, list[str]](list)
    for row, arrow, pair in (hop.partition("→") for hop in hops):
        pairs[row + arrow].append(pair)
    return [row + ",".join(each) for row, each in pairs.items()]


GALLERY = charts.cells(
    "was_read", "layer that reads", "family", rows=rows, name="families", title="looks ahead",
)  # fmt: skip
"""The families of a run, at a glance."""
