"""Questions that training never sees.

What a question asks is, in the end, which value each of its N last names has: one of N! mappings.  The split keeps a
share of the mappings from training, so that no held-out question, in whatever words and order, was ever trained on.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator

from hopscope.errors import UserError
from hopscope.tasks.text.config import TextConfig
from hopscope.tasks.text.generate import questions, space
from hopscope.tasks.text.values import Question

Mapping = tuple[int, ...]
"""Of each name of the last round, in the order of the names: its value."""


def held_out_mappings(chains: int, share: float, seed: int) -> tuple[Mapping, ...]:
    """Mappings kept from training: those whose hash ranks first, at least one and not all; the same on any machine."""
    mappings = list(itertools.permutations(range(chains)))
    mappings.sort(key=lambda mapping: hashlib.sha256(f"{seed}/{mapping}".encode()).digest())
    count = min(max(1, round(share * math.factorial(chains))), len(mappings) - 1)
    return tuple(sorted(mappings[:count]))


def mapping_of(question: Question) -> Mapping:
    """The mapping of a question in equations.

    Raises:
        ValueError: another formulation.
    """
    if question.formulation != "equations":
        raise ValueError(f"expected a question in equations, found {question.formulation}")
    # Chain c ends in value c, and names of one round sort as they are counted: by length, then by letters.
    last = {path[0]: chain for chain, path in enumerate(question.structure.symbols)}
    return tuple(last[name] for name in sorted(last, key=lambda name: (len(name), name)))


def held_out_questions(
    config: TextConfig, count: int, seed: int, share: float, split_seed: int
) -> Iterator[Question]:
    """The first questions of a seed that training never sees.

    Raises:
        UserError: another formulation, a share that is none, or there are not so many of them.
    """
    if config.formulation != "equations":
        raise UserError(
            f"held_out: expected questions in equations, found {config.formulation}; leave it out"
        )
    if not 0.0 < share < 1.0:
        raise UserError(
            f"held_out: expected a share between 0 and 1, found {share}; 0.2 is the trainings' own"
        )
    held = set(held_out_mappings(config.chains, share, split_seed))
    # Every mapping has equally many questions.
    size = space(config) * len(held) // math.factorial(config.chains)
    if count > size:
        raise UserError(
            f"count: expected at most {size}, for so many held-out questions of depth {config.steps} there are, "
            f"found {count}; ask for fewer"
        )
    every = questions(config, space(config), seed)
    return itertools.islice((one for one in every if mapping_of(one) in held), count)
