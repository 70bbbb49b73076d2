"""Which questions in words: a value without torch."""

from typing import Final, Literal, Self, get_args

from pydantic import ValidationInfo, field_validator, model_validator

from hopscope.config import Config
from hopscope.tasks.text.names import ASKED_ABOUT, CITIES, KINGDOMS, LETTERS, PEOPLE

Formulation = Literal["equations", "lives_with", "kingdoms", "functions", "relatives"]

FORMULATIONS: Final[tuple[Formulation, ...]] = get_args(Formulation)
"""F1 to F5 of the paper, in its order."""

DEPTHS: Final[dict[str, int]] = {
    "equations": 5,
    "lives_with": 5,
    "kingdoms": 5,
    "functions": 2,
    "relatives": 4,
}
"""Depths of Appendix A; of functions and relatives, the longest way from the question to the answer."""

_FIXED_DEPTH = ("kingdoms", "functions", "relatives")
_FIXED_CHAINS = {"functions": len(ASKED_ABOUT), "relatives": len(ASKED_ABOUT)}
_MOST_CHAINS = {
    "lives_with": (len(CITIES), "cities"),
    "kingdoms": (len(KINGDOMS), "kingdoms"),
}
_MOST_NAMES = {
    "equations": (len(LETTERS), f"names from {LETTERS[0]} to {LETTERS[-1]}"),
    "lives_with": (len(PEOPLE), f"people from {PEOPLE[0]} to {PEOPLE[-1]}"),
}


class TextConfig(Config):
    """A kind of question in words (paper, section 4 and Appendix A).

    Attributes:
        formulation: equations (F1), lives_with (F2), kingdoms (F3), functions (F4) or relatives (F5).
        depth: retrieval steps D, at least 1; None stands for the formulation's own and is replaced by it.
            Kingdoms (5), functions (2) and relatives (4) have no other.
        chains: interleaved chains N, at least 2; functions and relatives have 4.
    """

    formulation: Formulation
    depth: int | None = None
    chains: int = 4

    @property
    def steps(self) -> int:
        """D, as a number whatever was given."""
        return DEPTHS[self.formulation] if self.depth is None else self.depth

    @field_validator("depth")
    @classmethod
    def _own_depth(cls, depth: int | None, info: ValidationInfo) -> int | None:
        return DEPTHS.get(info.data.get("formulation", "")) if depth is None else depth

    @model_validator(mode="after")
    def _can_be_written(self) -> Self:
        name, depth, chains = self.formulation, self.steps, self.chains
        if name in _FIXED_DEPTH and depth != DEPTHS[name]:
            raise ValueError(f"depth: expected {DEPTHS[name]} for {name}, found {depth}; leave it out")
        if name in _FIXED_CHAINS and chains != _FIXED_CHAINS[name]:
            raise ValueError(
                f"chains: expected {_FIXED_CHAINS[name]} for {name}, found {chains}; leave it out"
            )
        for what, least, found in (("depth", 1, depth), ("chains", 2, chains)):
            if found < least:
                raise ValueError(f"{what}: expected at least {least}, found {found}; take more")
        most, words = _MOST_CHAINS.get(name, (chains, ""))
        if chains > most:
            raise ValueError(
                f"chains: expected at most {most} ({name} knows {most} {words}), found {chains}; take fewer"
            )
        most, words = _MOST_NAMES.get(name, (depth * chains, ""))
        if depth * chains > most:
            raise ValueError(
                f"depth: expected depth · chains at most {most} ({name} knows {most} {words}), "
                f"found {depth} · {chains} = {depth * chains}; take a smaller depth or fewer chains"
            )
        return self
