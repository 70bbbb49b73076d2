"""What formulations, kinds of questions and models are called on the page."""

from collections.abc import Sequence
from typing import Final

from hopscope.studies.llm.cells import Cell
from hopscope.studies.llm.config import Kind
from hopscope.tasks.text.config import Formulation

NAMES: Final[dict[Formulation, str]] = {
    "equations": "equations",
    "lives_with": "lives with",
    "kingdoms": "kingdoms",
    "functions": "functions",
    "relatives": "relatives",
}

SHAPES: Final[dict[Formulation, str]] = {
    "equations": "a = 3. b = a. c = b. c = ?",
    "lives_with": "Alice lives in Switzerland. Bob lives with Alice. Where does Bob live?",
    "kingdoms": "Alice lives in Novaria. Novarians believe in harmonianism. … Who has Chronogy?",
    "functions": "f(2) = 3. g = f. a = 2. g(a) = ?",
    "relatives": "Jane lives in Switzerland. Alex's mother is Jane. Engineers live with their mothers. Alex is an "
    "engineer. Where does Alex live?",
}
"""One chain of each, in the paper's short form (section 4)."""

_LONGEST = 24


def kind_words(cell: Cell) -> str:
    """A kind of question; only equations have a depth to choose."""
    return kind_name(cell.formulation, cell.depth)


def kind_name(formulation: Formulation, depth: int) -> str:
    """A formulation, with its depth where that can be chosen."""
    name = NAMES[formulation]
    return f"{name} D = {depth}" if formulation == "equations" else name


def kinds_words(kinds: Sequence[Kind]) -> str:
    """Several kinds of question, the depths of equations together."""
    depths = [str(kind.depth) for kind in kinds if kind.formulation == "equations"]
    others = [kind_name(*kind) for kind in kinds if kind.formulation != "equations"]
    return "; ".join(([f"equations D = {', '.join(depths)}"] if depths else []) + others)


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Names that fit into a legend: a long path loses its middle, if what is left is still different."""
    short = {model: _short(model) for model in models}
    return short if len(set(short.values())) == len(short) else {model: model for model in models}


def _short(model: str) -> str:
    provider, *_, last = model.rstrip("/").split("/")
    return model if len(model) <= _LONGEST else f"{provider}/…/{last}"
