"""Choosing among answers by probability: each by the tokens that tell it from all others.

Nothing is sampled, so a model that would rather say something else is asked nothing that it could refuse.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from jaxtyping import Float
from torch import Tensor

Tokens = tuple[int, ...]

LogProbabilities = Mapping[Tokens, float]
"""Of every beginning that was met: log-probability of its last token after the others."""


def beginnings(answers: Sequence[Tokens]) -> list[Tokens] | None:
    """Of each answer, the shortest beginning that no other one has; None if one answer begins another."""
    found = []
    for place, answer in enumerate(answers):
        others = [*answers[:place], *answers[place + 1 :]]
        length = next(n for n in count(1) if n > len(answer) or all(o[:n] != answer[:n] for o in others))
        if length > len(answer):
            return None
        found.append(answer[:length])
    return found


def leaves(of: Sequence[Tokens]) -> list[Tokens]:
    """Tokens that must be read so that every token of the beginnings follows something that was read."""
    nodes = dict.fromkeys(each[:-1] for each in of)
    return [node for node in nodes if not any(o != node and o[: len(node)] == node for o in nodes)]


def following(
    leaf: Tokens, of: Sequence[Tokens], logits: Float[Tensor, "place vocabulary"]
) -> Iterator[tuple[Tokens, float]]:
    """Log-probability of every next token of the beginnings, along one leaf.

    Args:
        leaf: tokens that were read after the prompt.
        of: beginnings.
        logits: after the prompt, and after each token of the leaf.
    """
    told = logits.float().log_softmax(dim=-1)
    for cut in range(len(leaf) + 1):
        for each in {one[: cut + 1] for one in of if len(one) > cut and one[:cut] == leaf[:cut]}:
            yield each, float(told[cut, each[-1]])


def totals(of: Sequence[Tokens], known: LogProbabilities) -> list[float]:
    """Log-probability of each beginning: the sum over its tokens."""
    return [sum(known[each[:cut]] for cut in range(1, len(each) + 1)) for each in of]
