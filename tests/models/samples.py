"""Models and batches for the tests: every axis has its own prime, so that no two can be exchanged unnoticed."""

import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Edits
from hopscope.models.parameters import Parameters
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import NO_RELATION, Batch

MEMBERS, LAYERS, HEADS, HEAD_DIM, POSITIONS, BATCH, WIDTH, MLP, SYMBOLS, OUTPUT = (
    2,
    3,
    5,
    7,
    11,
    13,
    17,
    19,
    23,
    29,
)
SEEDS = torch.tensor([31, 37])
TABLES = ("embed.token.weight", "embed.position.weight")
"""Weights that are no linear map: [row, model] in the ensemble and in the plain module alike."""

PAGE = {"mlp_ratio": 2.0, "activation": "relu", "norm": "post", "init": "encoder"}
"""The page's model: one layer of `torch.nn.TransformerEncoderLayer` over learned tokens and positions, V = 5."""


VECTORS = {"input_kind": "vectors", "positions": "learned"}
VARIANTS = {
    "as it is": {},
    "one layer": {"layers": 1},
    "one head": {"heads": 1},
    "head size from the width": {"heads": 1, "head_dim": None},
    "post-norm": {"norm": "post"},
    "no norm": {"norm": "none"},
    "no MLP": {"mlp_ratio": 0.0},
    "no MLP, post-norm": {"mlp_ratio": 0.0, "norm": "post"},
    "relu": {"activation": "relu"},
    "not causal": {"causal": False},
    "no positions": {"positions": "none"},
    "vectors": VECTORS,
    "vectors without positions": VECTORS | {"positions": "none"},
    "vectors that carry positions": VECTORS | {"positions": "carried"},
    "vectors with a position part": VECTORS | {"positions": "carried", "position_size": 3},
    "some positions read out": {"readout": (0, 3, 10)},
    "last position of one layer": {"readout": (10,), "layers": 1},
    "the page's kind": {"norm": "post", "activation": "relu", "init": "encoder", "readout": (0, 2, 4)},
}
"""Changes of `config` that together reach every branch of a forward pass."""


def config(**changes) -> TransformerConfig:
    shape = {
        "layers": LAYERS,
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "width": WIDTH,
        "mlp_ratio": MLP / WIDTH,
        "length": POSITIONS,
        "input_size": SYMBOLS,
        "output_size": OUTPUT,
    }
    return TransformerConfig.model_validate(shape | changes)


def page_config(width: int, heads: int) -> TransformerConfig:
    return TransformerConfig(width=width, heads=heads, length=9, input_size=6, output_size=6, **PAGE)


def lively(config: TransformerConfig, seeds: torch.Tensor = SEEDS) -> Transformer:
    """A model whose every weight matters: fresh ones have zero biases and attend almost uniformly."""
    parameters = Parameters.initial(config, seeds)
    generator = torch.Generator().manual_seed(41)
    for name, view in parameters.views().items():
        centre = 1.0 if name.endswith("norm.weight") else 0.0
        view.copy_(centre + _spread(name, view) * torch.randn(view.shape, generator=generator))
    return Transformer(config, parameters)


def _spread(name: str, view: torch.Tensor) -> float:
    """Sizes that keep the stream near 1, where float32 holds five digits through every layer."""
    if name in TABLES:
        return 1.0
    spread = view.shape[1] ** -0.5 if view.ndim == 3 else 0.3
    return 0.5 * spread if ".output." in name or ".outer." in name else spread


def inputs(config: TransformerConfig, members: int = MEMBERS, positions: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(43)
    shape = (members, BATCH, positions or config.length)
    if config.input_kind == "tokens":
        return torch.randint(config.input_size, shape, generator=generator)
    return torch.randn(*shape, config.input_size, generator=generator)


def batch(config: TransformerConfig, members: int = MEMBERS) -> Batch:
    """Random inputs with made-up roles and relations that differ from sample to sample and member to member.

    Roles: `kind` (0 or 1), `slot` (a permutation of the positions).  Relations: `partner` (any position or none),
    `past` (an earlier position or none).
    """
    generator = torch.Generator().manual_seed(47)
    shape = (members, BATCH, config.length)
    slot = torch.rand(shape, generator=generator).argsort(-1)
    partner = torch.randint(NO_RELATION, config.length, shape, generator=generator)
    past = torch.minimum(partner, torch.arange(config.length) - 1)
    given = inputs(config, members)
    targets = torch.randint(config.output_size, shape, generator=generator)
    kind = (torch.rand(shape, generator=generator) < 0.5).long()
    return Batch(
        given,
        targets[:, :, list(config.readout_positions)],
        roles={"kind": kind, "slot": slot},
        relations={"partner": partner, "past": past},
    )


def under(model: Transformer, batch: Batch, *lists, **given) -> list[torch.Tensor]:
    """Predictions under each of some lists of interventions."""
    return [model(batch.inputs, Edits(model, each, batch, **given)) for each in lists]


def only(batch: Batch, member: int) -> Batch:
    """The batch of one member (of the only one, where all share it), with a member axis of 1."""
    index = min(member, batch.inputs.shape[0] - 1)

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[index : index + 1]

    return Batch(
        cut(batch.inputs),
        cut(batch.targets),
        roles={name: cut(role) for name, role in batch.roles.items()},
        relations={name: cut(relation) for name, relation in batch.relations.items()},
    )
