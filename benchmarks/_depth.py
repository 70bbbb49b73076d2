"""The workload of the comparison by depth, which its contestants share.

The retrieval problem (paper, sections 3 and 6): N = 4 chains of D + 1 = 4 symbols, each a fresh Gaussian vector of
K = 4 numbers.  For every step, the deepest first, a block shows the N pairs (x_{k-1}, x_k) in random order; then come
the queries x_0 in random order, 28 positions in all.  An input vector is a symbol and the code of its position.  A
query is asked for x_1 … x_3 of its chain, 12 numbers, by mean squared error.

The model is a pre-norm transformer without MLP (6 layers, width 64, 4 heads, causal), drawn as GPT-2 is and trained by
AdamW with weight decay on matrices.
"""

import argparse
import math
from collections.abc import Sequence

from _common import arguments, parse, stop

CHAINS, SYMBOL_DIM, STEPS = 4, 4, 3
POSITIONS = CHAINS * (2 * STEPS + 1)
INPUT_SIZE, OUTPUT_SIZE = 2 * SYMBOL_DIM, STEPS * SYMBOL_DIM
LAYERS, WIDTH, HEADS = 6, 64, 4
BATCH = 64
LEARNING_RATE, WEIGHT_DECAY, BETAS, EPSILON = 1e-3, 0.1, (0.9, 0.95), 1e-8
DEVIATION = 0.02
RESIDUAL_DEVIATION = DEVIATION / math.sqrt(2 * LAYERS)


def position_codes() -> list[list[float]]:
    """Cosines and sines of each position, at whole multiples of 2π over the number of positions."""
    half = SYMBOL_DIM // 2
    codes = []
    for position in range(POSITIONS):
        angles = [2.0 * math.pi * (number + 1) / POSITIONS * position for number in range(half)]
        codes.append([*map(math.cos, angles), *map(math.sin, angles)])
    return codes


def depth_arguments(name: str, members: int = 1) -> argparse.ArgumentParser:
    """The options of every contestant."""
    parser = arguments(name, members, BATCH)
    parser.add_argument(
        "--mlp-ratio", type=int, default=0, help="hidden size of the MLP (GELU) over the width"
    )
    return parser


def depth_parse(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, *, single: bool
) -> argparse.Namespace:
    """Parse and check."""
    options = parse(parser, argv, single=single)
    if options.mlp_ratio < 0:
        stop(f"--mlp-ratio: expected 0 or more, found {options.mlp_ratio}; use for example --mlp-ratio 4")
    return options
