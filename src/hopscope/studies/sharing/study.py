"""Do positions attend only where they share information (S3)?  Depths that learn when less is shared.

The bound on layers rests on Assumption 1 of the paper: a position can attend only to positions with which it shares a
piece of information.  Here what is shared is changed, or taken away.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hopscope.claims import Claim, Samples, at_least, between
from hopscope.claims.verdict import counted
from hopscope.config import Config
from hopscope.studies.chains.evidence import SHARE_SEEDS, has
from hopscope.studies.curriculum import wide
from hopscope.study.study import Configuration
from hopscope.tasks import Floors, Retrieval, Shape, Task
from hopscope.tasks.retrieval import Order, Targets

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.runs import Evidence
    from hopscope.tasks import Batch, Draws


class Sharing(Task):
    """Follow chains of pairs, as in the retrieval problem.  What two positions share can be taken away.

    In the retrieval problem the tokens of a pair are tied by their position codes, and the two occurrences of a symbol
    (second token of its own pair, first token of the next pair) by being equal.  The answer x_k is the symbol as the
    second token of its pair shows it.

    Attributes:
        steps: retrieval steps D of a chain.
        chains: number of chains N of a sample.
        symbol_dim: dimensions K of a symbol.
        order: in which the pairs of a sample stand, by step.
        targets: whether the whole chain is asked for (`"ic"`), or its last symbol alone (`"last"`).
        codes: `"pair"`: both tokens of a pair have one code.  `"token"`: every position has its own (paper, section 6).
            `"one-hot"`: likewise, and all are orthogonal.  `"drawn for pairs"`, `"drawn for tokens"`: normal vectors,
            new in every sample; of the latter, nothing says which tokens are a pair.
        second: how a symbol looks as a second token.  `"same"`: as everywhere.  `"turned"`: a quarter turn in each
            plane of two dimensions, so that it is orthogonal to itself.  `"turned anew"`: by an orthogonal matrix that
            is drawn for every sample.  `"unrelated"`: another symbol, so that no chain goes on.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "step")

    steps: int = 2
    chains: int = 4
    symbol_dim: int = 4
    order: Order = "deepest-first"
    targets: Targets = "ic"
    codes: Literal["pair", "token", "one-hot", "drawn for pairs", "drawn for tokens"] = "pair"
    second: Literal["same", "turned", "turned anew", "unrelated"] = "same"

    @property
    def retrieval(self) -> Retrieval:
        fields = self.model_dump(include={"steps", "chains", "symbol_dim", "order", "targets"})
        return Retrieval(**fields, position="pair" if self.codes == "pair" else "token")

    @property
    def words(self) -> Mapping[str, Any]:
        return self.retrieval.words

    def shape(self) -> Shape:
        shape = self.retrieval.shape()
        size = shape.positions if self.codes == "one-hot" else self.symbol_dim
        return shape.model_copy(update={"input_size": self.symbol_dim + size, "position_size": size})

    def sample(self, draws: "Draws") -> "Batch":
        import torch

        batch = self.retrieval.sample(draws)
        symbols, codes = batch.inputs.tensor_split((self.symbol_dim,), -1)
        symbols, targets = self._second_tokens(draws, batch, symbols)
        inputs = torch.cat((symbols, self._codes(draws, codes)), -1)
        return replace(batch, inputs=inputs, targets=targets)

    def _codes(self, draws: "Draws", plain: "Tensor") -> "Tensor":
        import torch

        positions = plain.shape[2]
        if self.codes == "one-hot":
            return torch.eye(positions, device=plain.device).expand(*plain.shape[:2], -1, -1)
        if not self.codes.startswith("drawn"):
            return plain
        drawn = draws.normal("codes", (positions, self.symbol_dim))
        if self.codes == "drawn for tokens":
            return drawn
        # Both tokens of a pair have the code of its first token; the queries have their own.
        place = torch.arange(positions, device=plain.device)
        return drawn[:, :, torch.where(place < positions - self.chains, place // 2 * 2, place)]

    def _second_tokens(self, draws: "Draws", batch: "Batch", symbols: "Tensor") -> "tuple[Tensor, Tensor]":
        """Symbols of all tokens and targets, with other second tokens."""
        import torch

        from hopscope.tasks.vectors import selected

        if self.second == "same":
            return symbols, batch.targets
        if self.second == "unrelated":
            others = draws.normal("second", (self.chains * self.steps, self.symbol_dim))
            chain, step = batch.roles["chain"], batch.roles["step"]
            asked = torch.tensor([*self.retrieval.asked.values()], device=symbols.device) - 1
            query = chain[:, :, -self.chains :, None] * self.steps + asked
            shown = selected(others, chain * self.steps + (step - 1).clamp(min=0))
            answers = selected(others, query.flatten(2))
        else:
            # Queries and steps become one axis, over which all symbols are turned alike.
            turn = self._turn(draws)
            shown = symbols @ turn
            answers = batch.targets.reshape(*symbols.shape[:2], -1, self.symbol_dim) @ turn
        second = batch.roles["kind"] == self.words["roles"]["kind"].index("second")
        return torch.where(second[..., None], shown, symbols), answers.reshape(batch.targets.shape)

    def _turn(self, draws: "Draws") -> "Tensor":
        """An orthogonal matrix, for all samples or for each, `[…, dim, dim]`."""
        import torch

        if self.second == "turned anew":
            return torch.linalg.qr(draws.normal("turn", (self.symbol_dim, self.symbol_dim))).Q
        quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], device=draws.device)
        return torch.block_diag(*[quarter] * (self.symbol_dim // 2))

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        return self.retrieval.parts(predictions, batch)

    def floors(self) -> Floors:
        found = self.retrieval.floors()
        return {name: floor for name, floor in found.items() if not name.startswith("accuracy")}


STEPS, EXACT = 2, 3
"""Steps of the chains, and the fewest layers with which x₂ can be found."""

PAIRS, TOKENS, ONE_HOT = "codes of pairs", "codes of tokens", "orthogonal codes of tokens"
PAIRS_ANEW, TOKENS_ANEW = "codes of pairs, drawn anew", "codes of tokens, drawn anew"
TURNED, TURNED_ANEW, UNRELATED = "symbols turned", "symbols turned anew", "unrelated symbols"

VARIANTS: dict[str, dict[str, Any]] = {
    PAIRS: {"task.codes": "pair"},
    TOKENS: {"task.codes": "token"},
    ONE_HOT: {"task.codes": "one-hot"},
    PAIRS_ANEW: {"task.codes": "drawn for pairs"},
    TURNED: {"task.second": "turned"},
    "steps shallowest first": {"task.order": "shallowest-first"},
    "steps in random order": {"task.order": "random"},
    TURNED_ANEW: {"task.second": "turned anew"},
    TOKENS_ANEW: {"task.codes": "drawn for tokens"},
    UNRELATED: {"task.second": "unrelated"},
}
"""What the samples of a variant are like → fields that differ."""

SHARED = (TOKENS, ONE_HOT, PAIRS_ANEW, TURNED)
"""Variants in which the same information is shared by other vectors."""

BROKEN = (TOKENS_ANEW, UNRELATED)
"""Variants in which some position that must be found shares nothing with the one that looks for it."""

LONG, QUICK_ORDER, USUAL_ORDER = 4, "D = 4, order 1 2 4 3", "D = 4, order 4 3 2 1"
ORDERS: dict[str, dict[str, Any]] = {
    QUICK_ORDER: {"task.steps": LONG, "task.order": (1, 2, 4, 3)},
    USUAL_ORDER: {"task.steps": LONG, "task.order": (4, 3, 2, 1)},
}
"""Chains whose order is compared: an order of their steps in which three layers can be enough, one that needs four."""

FEWER, POSITION = at_least(1.0, unit="layers"), between(0.7, 0.8)
NO_CONTROL = "no control of the same variant that learns"


class Options(Config):
    """What is trained.

    Attributes:
        layers: numbers of layers.
        order_layers: numbers of layers of the models for which two orders of four steps are compared; empty: none.
    """

    layers: tuple[int, ...] = (2, 3, 4, 6)
    order_layers: tuple[int, ...] = (3, 4, 6)


def configurations(options: Options) -> list[Configuration]:
    return wide.by_depth(VARIANTS, options.layers) + wide.by_depth(ORDERS, options.order_layers)


# What is claimed.


def losses(name: str, evidence: "Evidence") -> Any:
    """Final losses of x₂ of a configuration, `[member]`."""
    return evidence.last(f"loss_step_{STEPS}", configuration=name)


def layers_saved(options: Options, evidence: "Evidence") -> Samples:
    """By seed, layers that the quick order saves; what no depth learned takes one more than the most tried, or more."""
    usual, quick = (
        wide.least(evidence, name, options.order_layers, LONG) for name in (USUAL_ORDER, QUICK_ORDER)
    )
    return wide.saved(usual, quick, max(options.order_layers) + 1, FEWER.low)


def lacks_of_unrelated(label: str, evidence: "Evidence") -> str:
    """What a run lacks for S3c; a model that beats position refutes it as it stands."""
    beats = has(evidence, label) and (losses(label, evidence) < POSITION.low).any()
    early = "" if beats else wide.unsettled(evidence, NO_CONTROL)
    return ", ".join(filter(None, [wide.smaller_scale(evidence), early]))


def claims(options: Options) -> Iterator[Claim]:
    deepest = max(options.layers)
    usual = {PAIRS: (wide.at_depth(PAIRS, deepest), STEPS)}
    broken = {name: (wide.at_depth(name, deepest), STEPS) for name in BROKEN}
    claim = partial(wide.open_claim, source="summary of the paper, next check 3")
    everywhere = wide.cells_of(BROKEN, options.layers, STEPS)
    unrelated = wide.at_depth(UNRELATED, deepest)
    yield claim(
        id="S3a",
        statement="Shared information is enough: it need not be equal vectors, nor fixed codes.",
        protocol="share of seeds with a final held-out loss of x₂ under 0.5, at the largest depth; the controls "
        "share nothing",
        **wide.shares((wide.cells_of(SHARED, [deepest], STEPS), wide.MOST), controls=broken),
        rule="share",
        seeds_needed=SHARE_SEEDS,
    )
    yield claim(
        id="S3b",
        statement="Where two positions share nothing, no depth learns to go from one to the other.",
        protocol="the same share at every depth, every seed; the control is the retrieval problem",
        **wide.shares((everywhere, wide.NONE), controls=usual, more=NO_CONTROL),
    )
    yield claim(
        id="S3c",
        statement="With unrelated symbols, models use position alone.",
        protocol="final held-out loss of x₂ where second tokens are unrelated, at the largest depth, every seed: "
        "near 1 - 1/N, the cost of the mean of the four symbols that could be right",
        value=partial(losses, unrelated),
        must=POSITION,
        controls={PAIRS: partial(losses, wide.at_depth(PAIRS, deepest))},
        at_scale=partial(lacks_of_unrelated, unrelated),
    )
    if shallow := wide.cells_of(VARIANTS, [each for each in options.layers if each < EXACT], STEPS):
        yield claim(
            id="S3d",
            statement=f"However information is shared, fewer than {counted(EXACT, 'layer')} learn no x₂.",
            protocol="share of models that learned x₂ with fewer layers than the model of information flow "
            "allows, every seed of every variant; the control is the retrieval problem at the largest depth",
            **wide.shares((shallow, wide.NONE), controls=usual, more=NO_CONTROL),
        )
    if 3 in options.order_layers:
        apart = wide.apart(USUAL_ORDER, options.order_layers, LONG)
        yield claim(
            id="S3e",
            statement="The order 1, 2, 4, 3, for which three layers can be enough, is learned with fewer layers "
            "than the order 4, 3, 2, 1, which needs four.",
            protocol="by seed: smallest number of layers that learned x₄ in the order 4, 3, 2, 1, less that in the "
            "order 1, 2, 4, 3; where no depth learned it, more than the most that were tried",
            value=partial(layers_saved, options),
            must=FEWER,
            rule="mean",
            controls={"one order, from one seed to the next": apart},
        )


study = wide.open_study(
    name="sharing",
    question="do positions attend only where they share information, and does the depth law rest on it?",
    task=Sharing(),
    options=Options(),
    fixed=(*wide.FIXED, "task.second"),
    configurations=configurations,
    claims=claims,
    figures=lambda options: [wide.depths(VARIANTS, options.layers, (0.0, 1.0))],
    presets={
        "smoke": {**wide.SMOKE, "layers": (2, 3), "order_layers": ()},
        "laptop": {"layers": (2, 4), "order_layers": ()},
        "workstation": {},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 10 min on two cores by estimate",
        "workstation": "about 30 min on two cores",
    },
)
