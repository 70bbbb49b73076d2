"""The workload of the comparison by depth, which its contestants share.

The retrieval problem (paper, sections 3 and 6): N = 4 chains of D + 1 symbols, each a fresh Gaussian vector of K = 4
numbers.  For every step, the deepest first, a block shows the N pairs (x_{k-1}, x_k) in random order; then come the
queries x_0 in random order, N (2 D + 1) positions in all.  An input vector is a symbol and the code of its position.
A query is asked for x_1 … x_D of its chain, D K numbers, by mean squared error.

The model is a causal pre-norm transformer, with an MLP (exact GELU) or without, drawn as GPT-2 is and trained by AdamW
with weight decay on matrices.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from _common import arguments, parse, stop

CHAINS, SYMBOL_DIM = 4, 4
INPUT_SIZE = 2 * SYMBOL_DIM
BATCH = 64
LEARNING_RATE, WEIGHT_DECAY, BETAS, EPSILON = 1e-3, 0.1, (0.9, 0.95), 1e-8
DEVIATION = 0.02


@dataclass(frozen=True)
class Shape:
    """How large task and model are; by default the laptop preset's deepest model.

    Attributes:
        steps: D, the retrieval steps of a chain.
        layers, width, heads: number of layers, size of the residual stream, heads of a layer.
        head_dim: size of one head; `None` means width / heads, which must then be whole.
        mlp_ratio: hidden size of the MLP over the width; 0 means no MLP.
    """

    steps: int = 3
    layers: int = 6
    width: int = 64
    heads: int = 4
    head_dim: int | None = None
    mlp_ratio: int = 0

    @property
    def positions(self) -> int:
        """Of a sample; the last are the queries."""
        return CHAINS * (2 * self.steps + 1)

    @property
    def output_size(self) -> int:
        """Numbers that a query is asked for."""
        return self.steps * SYMBOL_DIM

    @property
    def head_size(self) -> int:
        """Size of one head."""
        return self.width // self.heads if self.head_dim is None else self.head_dim

    @property
    def inner(self) -> int:
        """Size of all heads of a layer."""
        return self.heads * self.head_size

    @property
    def mlp_size(self) -> int:
        """Hidden size of the MLP, 0 where there is none."""
        return self.mlp_ratio * self.width

    @property
    def residual_deviation(self) -> float:
        """Of the initial weights that write to the residual stream."""
        return DEVIATION / math.sqrt(2 * self.layers)

    def options(self) -> dict[str, int]:
        """The contestants' options that make this shape of the default one."""
        values = {each: getattr(self, each.name) for each in fields(self)}
        return {_flag(each.name): value for each, value in values.items() if value != each.default}


def _flag(field: str) -> str:
    return "head-size" if field == "head_dim" else field.replace("_", "-")


def position_codes(shape: Shape) -> list[list[float]]:
    """Cosines and sines of each position, at whole multiples of 2π over the number of positions."""
    half = SYMBOL_DIM // 2
    codes = []
    for position in range(shape.positions):
        angles = [2.0 * math.pi * (number + 1) / shape.positions * position for number in range(half)]
        codes.append([*map(math.cos, angles), *map(math.sin, angles)])
    return codes


def depth_arguments(name: str, members: int = 1) -> argparse.ArgumentParser:
    """The options of every contestant."""
    parser = arguments(name, members, BATCH)
    usual = Shape()
    parser.add_argument("--steps", type=int, default=usual.steps, help="D, the retrieval steps of a chain")
    parser.add_argument("--layers", type=int, default=usual.layers)
    parser.add_argument("--width", type=int, default=usual.width, help="of the residual stream")
    parser.add_argument("--heads", type=int, default=usual.heads)
    parser.add_argument("--head-size", type=int, help="of one head; by default the width over the heads")
    parser.add_argument(
        "--mlp-ratio", type=int, default=usual.mlp_ratio, help="hidden size of the MLP (GELU) over the width"
    )
    return parser


def depth_parse(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, *, single: bool
) -> argparse.Namespace:
    """Parse and check."""
    options = parse(parser, argv, single=single)
    for name in ("steps", "layers", "width", "heads", "head_size"):
        found, flag = getattr(options, name), name.replace("_", "-")
        if found is not None and found < 1:
            stop(f"--{flag}: expected at least 1, found {found}; use for example --{flag} 4")
    if options.head_size is None and options.width % options.heads:
        found = options.width
        stop(f"--width: expected a multiple of --heads {options.heads}, found {found}; or give --head-size")
    if options.mlp_ratio < 0:
        stop(f"--mlp-ratio: expected 0 or more, found {options.mlp_ratio}; use for example --mlp-ratio 4")
    return options


def shape_of(options: argparse.Namespace) -> Shape:
    """The shape that parsed options ask for."""
    return Shape(
        steps=options.steps,
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        head_dim=options.head_size,
        mlp_ratio=options.mlp_ratio,
    )
