"""Circuits in a file that anybody can write, and `hopscope zoo score` scores (format `hopscope-circuits`, version 1).

```json
{"format": "hopscope-circuits", "schema_version": 1, "finder": "mine",
 "circuits": [
  {"model": "chain-000", "edges": [
    {"edge": "a0.h0->a1.h0<k>", "score": 0.9},
    {"edge": "a0.h0->a1.h0<q>", "score": 0.1, "in_circuit": false}]},
  {"model": "chain-001", "heads": [{"layer": 0, "head": 1, "rows": "second 1", "score": 0.7}]}]}
```

A circuit is a list of edges or of head rows.  `in_circuit` says whether the circuit has it; it is true if left out.
`score` is the finder's own: larger means more important, and negative that the answer is better without it.  Scores are
given to all edges of a circuit or to none; an edge that is not listed has score 0 and is not in the circuit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.finders.catalogue import HeadRow, ZooModel
from hopscope.finders.edges import Edge, by_name, edges_of
from hopscope.models.config import TransformerConfig
from hopscope.runs import read_json


class ScoredEdge(Config):
    """An edge that a finder says something of.

    Attributes:
        edge: its name, such as `a0.h1->a2.h0<k>` or `a2.h0->logits`.
        score: the finder's; `None` where it gives none.
        in_circuit: whether the circuit has it.
    """

    edge: str
    score: float | None = None
    in_circuit: bool = True


class ScoredRow(HeadRow):
    """Rows of a head that a finder says something of.

    Attributes:
        score, in_circuit: as of a `ScoredEdge`.
    """

    score: float | None = None
    in_circuit: bool = True


class FoundCircuit(Config):
    """What a finder found in one model: edges, or head rows.

    Attributes:
        model: name of the model.
        edges: what it says of edges.
        heads: or what it says of the rows of heads.
        seconds: CPU seconds that finding took.
    """

    model: str
    edges: tuple[ScoredEdge, ...] | None = None
    heads: tuple[ScoredRow, ...] | None = None
    seconds: float | None = Field(None, ge=0.0)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.edges is None) == (self.heads is None):
            raise ValueError(
                f"{self.model}: expected edges or heads, found {'both' if self.edges else 'neither'}"
            )
        given = [each.score is not None for each in self.edges or self.heads or ()]
        if any(given) and not all(given):
            raise ValueError(
                f"{self.model}: expected scores for all that is listed or for none, found {sum(given)} of {len(given)}"
            )
        return self

    @property
    def scored(self) -> bool:
        """Whether the finder gave any scores."""
        return any(each.score is not None for each in self.edges or self.heads or ())


class CircuitFile(Config):
    """Circuits of one finder.

    Attributes:
        finder: its name.
        circuits: of each model.
    """

    format: Literal["hopscope-circuits"] = "hopscope-circuits"
    schema_version: Literal[1] = 1
    finder: str = "unnamed"
    circuits: tuple[FoundCircuit, ...]


def read_circuits(path: Path, models: Sequence[ZooModel]) -> CircuitFile:
    """The circuits of a file.

    Raises:
        UserError: it is no such file, or names a model that there is not.
    """
    if not path.is_file():
        raise UserError(f"{path}: expected a file of circuits, found none; see docs/benchmark.md")
    try:
        found = CircuitFile.model_validate(read_json(path, "see docs/benchmark.md"))
    except ValidationError as error:
        raise UserError(f"{path}: {validation_line(error)}; see docs/benchmark.md") from None
    known = {model.name for model in models}
    seen: set[str] = set()
    for circuit in found.circuits:
        if circuit.model not in known:
            raise UserError(
                f"{path}: expected models that hopscope zoo list shows, found {circuit.model!r}; "
                "models of a folder need --models FOLDER"
            )
        if circuit.model in seen:
            raise UserError(f"{path}: expected each model once, found {circuit.model!r} again; keep one")
        seen.add(circuit.model)
    return found


def edges_said(found: FoundCircuit, config: TransformerConfig) -> dict[Edge, ScoredEdge]:
    """What is said of each edge.  Head rows stand for all edges between their heads, with the lesser of two scores.

    Raises:
        UserError: an edge or a head that the model lacks.
    """
    known = by_name(edges_of(config))
    if found.edges is not None:
        for each in found.edges:
            if each.edge not in known:
                raise UserError(
                    f"{found.model}: expected edges from heads to later heads' q, k, v or to logits, such as "
                    f"{next(iter(known), 'none')} ({config.layers} layers of {config.heads} heads), found {each.edge!r}"
                )
        return {known[each.edge]: each for each in found.edges}
    heads: dict[tuple[int, int], ScoredRow] = {}
    for row in found.heads or ():
        if not (0 <= row.layer < config.layers and 0 <= row.head < config.heads):
            raise UserError(
                f"{found.model}: expected heads of {config.layers} layers of {config.heads}, counted from 0, "
                f"found layer {row.layer}, head {row.head}"
            )
        before = heads.get((row.layer, row.head))
        if before is None or _rank(row) > _rank(before):
            heads[row.layer, row.head] = row
    said = {}
    for name, edge in known.items():
        ends = [heads[head] for head in edge.heads if head in heads]
        if len(ends) == len(edge.heads):
            scores = [end.score for end in ends if end.score is not None]
            inside = all(end.in_circuit for end in ends)
            said[edge] = ScoredEdge(edge=name, score=min(scores, default=None), in_circuit=inside)
    return said


def _rank(row: ScoredRow) -> tuple[bool, float]:
    return row.in_circuit, row.score or 0.0
