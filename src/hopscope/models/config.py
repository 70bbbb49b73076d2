"""The configuration of a transformer, without and with the task that it is for.  Loads no torch."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.tasks.task import Shape, expect, expect_readout

LARGEST_GAMMA = 4.0
"""Weights that start smaller than fan_in^-4 are nothing beside rounding."""

Size = Annotated[int, Field(ge=1, lt=2**31)]
Norm = Literal["pre", "post", "none"]
Start = Literal["gpt2", "linear", "encoder", "mimetic"]


def _start(init: Any) -> Any:
    number = isinstance(init, int | float) and not isinstance(init, bool)
    if init not in get_args(Start) and not (number and 0.0 < init <= LARGEST_GAMMA):
        words = f"a number γ with 0 < γ <= {LARGEST_GAMMA:g} (weights start at fan_in^-γ)"
        raise ValueError(f"{', '.join(get_args(Start))}, or {words}")
    return float(init) if number else init


Init = Annotated[float | Start, BeforeValidator(_start)]
"""How weights start: see `Model`."""


class Model(Config):
    """A transformer as a study declares it: everything but what the task decides (public name `hs.Model`).

    Attributes:
        layers: number of layers.
        heads: number of heads of a layer.
        width: size of the residual stream.
        head_dim: size of one head; by default width / heads, which must then be whole.
        mlp_ratio: hidden size of the MLP in widths; 0 means no MLP.
        activation: of the MLP.
        norm: layer norm before each block, after each residual sum, or nowhere.
        causal: whether a position is kept from attending to later ones.
        positions: a learned code for each position, one for each pair, none, or carried by the input vectors; by
            default carried where the task says so, and learned where it does not.  A learned code comes on top of one
            that is carried.
        init: how weights start.  `"linear"`: as `torch.nn.Linear` draws them, uniform within ±1/√fan_in, and embeddings
            as `torch.nn.Embedding`.  `"encoder"`: as `torch.nn.TransformerEncoderLayer` does (queries, keys and values
            as one Glorot matrix).  `"gpt2"`: N(0, 0.02), projections into the residual stream divided by √(2·layers),
            no biases.  A number γ: N(0, σ) with σ = fan_in^-γ, no biases.  `"mimetic"`: as `"encoder"`, but keys start
            with the weights of queries, so that equal tokens attend to each other, and learned position codes as sines
            (after Trockman and Kolter 2023, Mimetic initialization of self-attention layers).
    """

    layers: Size = 1
    heads: Size = 1
    width: Size = 16
    head_dim: Size | None = None
    mlp_ratio: float = Field(4.0, ge=0.0, le=1e6)
    activation: Literal["relu", "gelu"] = "gelu"
    norm: Norm = "pre"
    causal: bool = True
    positions: Literal["learned", "pair", "none", "carried"] | None = None
    init: Init = "linear"

    def for_task(self, shape: Shape) -> "TransformerConfig":
        """The whole configuration of a transformer for a task of this shape; a `UserError` if it does not fit."""
        carried = bool(shape.position_size) and self.positions in (None, "carried")
        if shape.position_size and self.positions == "none":
            words = "expected no 'none' for a task whose inputs carry position codes, found it"
            raise UserError(f"model.positions: {words}; take the codes from the task's samples")
        return TransformerConfig(
            **self.model_dump(include=set(Model.model_fields) - {"positions"}),
            positions="carried" if carried else self.positions or "learned",
            position_size=shape.position_size if carried else 0,
            length=shape.positions,
            input_kind=shape.inputs,
            **shape.model_dump(include={"input_size", "output_size", "readout"}),
        )


class TransformerConfig(Model):
    """A transformer whose task is known: everything that decides its shape and its starting point.

    Attributes:
        position_size: how many of an input vector's last features are its position code (`"carried"` only).
        length: number of positions.
        input_kind, input_size: `"tokens"` and the vocabulary, or `"vectors"` and the number of features.
        output_size: size of a prediction.
        readout: positions whose predictions are wanted; `None` means all.
    """

    positions: Literal["learned", "pair", "none", "carried"] = "learned"
    position_size: int = Field(0, ge=0, lt=2**31)
    length: Size
    input_kind: Literal["tokens", "vectors"] = "tokens"
    input_size: Size
    output_size: Size
    readout: tuple[int, ...] | None = None

    @property
    def head_size(self) -> int:
        """Features of one attention head."""
        return self.head_dim if self.head_dim is not None else self.width // self.heads

    @property
    def mlp_size(self) -> int:
        """Hidden size of the MLP, 0 where there is none."""
        return round(self.mlp_ratio * self.width)

    @property
    def position_codes(self) -> tuple[int, ...]:
        """Number of the learned code that each position is given; zeros where none is learned."""
        sharing = {"learned": 1, "pair": 2}.get(self.positions, self.length)
        return tuple(position // sharing for position in range(self.length))

    @property
    def position_count(self) -> int:
        """Number of learned position codes."""
        return {"learned": self.length, "pair": (self.length + 1) // 2}.get(self.positions, 0)

    @property
    def readout_positions(self) -> tuple[int, ...]:
        """Positions whose predictions are wanted."""
        return self.readout if self.readout is not None else tuple(range(self.length))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        whole, found = self.width % self.heads == 0, f"{self.width}; change one of them or give head_dim"
        expect(bool(self.head_dim) or whole, "width", f"a multiple of heads = {self.heads}", found)
        carried, vectors = self.positions == "carried", self.input_kind == "vectors"
        expect(vectors or not carried, "positions", "'carried' with vectors only", "it with tokens")
        most = f"less than input_size = {self.input_size} where positions are 'carried', else 0"
        found = f"{self.position_size} with positions {self.positions!r}"
        expect(self.position_size < (self.input_size if carried else 1), "position_size", most, found)
        expect_readout(self.readout_positions, self.length)
        return self

    def check_gpt2(self, members: int | None = None) -> None:
        """`UserError`: GPT-2's layout has no such model."""
        wanted = ("tokens", "pre", True, "learned", self.width, None, self.output_size)
        found = self.input_kind, self.norm, self.causal, self.positions, self.heads * self.head_size
        if (*found, members, self.input_size) != wanted or self.output_size > self.width:
            raise UserError(
                "model: expected a single causal pre-norm one with learned positions, whose heads fill its width and "
                "which reads and answers with the same tokens, at most as many as its width, found another; "
                "only such a model can be told in GPT-2's layout"
            )
