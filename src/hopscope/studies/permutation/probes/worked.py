"""Worked sequences: what a model holds of every value at every question of one sequence (presentation, section 6)."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.member import MemberTransformer
from hopscope.models.transformer import Transformer
from hopscope.tasks.splits import MappingSplit
from hopscope.theory.sequences import read_sequence


def sequence_probabilities(
    model: Transformer | MemberTransformer, tokens: Sequence[SupportsIndex]
) -> Float[Tensor, "member question output"]:
    """Each member's probabilities of every token (index = value; index 0 is no value) at each x of a sequence.

    The softmax is taken in float64, so that a probability near one keeps its distance from it.

    Args:
        model: an ensemble, or one member as a plain module (then `member` is 1).
        tokens: x₁ y₁ x₂ y₂ …, 2V of them, or 2V - 1 without the last y, which no model sees.

    Raises:
        UserError: the sequence is none of the permutation lookup task with the model's V.
        ValueError: the model does not read the tokens 0 … V at 2V - 1 positions.
    """
    values = _values(model)
    shown = read_sequence(tokens, values).tokens[: 2 * values - 1]
    with torch.no_grad():
        if isinstance(model, MemberTransformer):
            inputs = torch.tensor([shown], device=next(model.parameters()).device)
            predictions = model(inputs)[None]
        else:
            inputs = torch.tensor([[shown]], device=model.parameters.flat.device)
            predictions = model(inputs, every_position=True)
    return predictions[:, 0, ::2].double().softmax(-1)


def worked_sequence(
    model: Transformer | MemberTransformer,
    tokens: Sequence[SupportsIndex],
    split: MappingSplit | None = None,
) -> dict[str, Any]:
    """One sequence, question by question, as JSON values for an analysis.

    Args:
        model: an ensemble, or one member as a plain module.
        tokens: as for `sequence_probabilities`.
        split: the models' split of the mappings, to say on which side this one is.

    Returns:
        `tokens`; `mapping` (the values of 1 … V, null where the pairs leave several); `split` (`"train"`,
        `"held_out"`, or null); `questions`, each with the fields of `theory.sequences.Question`; `probabilities`
        `[member][question][value]` of the values 1 … V (what is missing to one lies on token 0, which is no value).

    Raises:
        UserError: as `sequence_probabilities`.
        ValueError: as `sequence_probabilities`.
    """
    reading = read_sequence(tokens, _values(model))
    probabilities = sequence_probabilities(model, reading.tokens)
    side = None
    if split is not None and reading.mapping is not None:
        side = "train" if bool(split.is_training(torch.tensor(reading.mapping))) else "held_out"
    return {
        "tokens": list(reading.tokens),
        "mapping": None if reading.mapping is None else list(reading.mapping),
        "split": side,
        "questions": [
            {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(each).items()}
            for each in reading.questions
        ],
        "probabilities": probabilities[..., 1:].tolist(),
    }


def _values(model: Transformer | MemberTransformer) -> int:
    config = model.config
    values = config.input_size - 1
    if config.input_kind != "tokens" or config.output_size != values + 1 or config.length != 2 * values - 1:
        raise ValueError(
            "model: expected one of the permutation lookup task, with V + 1 tokens in and out and 2V - 1 positions, "
            f"found {config.input_size} {config.input_kind} in, {config.output_size} out, {config.length} positions"
        )
    return values
