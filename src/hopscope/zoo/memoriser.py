"""A model of the presentation's larger size that knows the training mappings of four values, set by hand (claim P11).

One encoder layer of width 32 with two heads and 64 hidden units, trained on four values, could know its 19 training
mappings: this one does.  So where training falls short of it, that is no lack of capacity.

**What it must know.**  Held-out mappings alone: an answer that only a held-out mapping would give is never right.  At
the third step two answers are left, and one of them is certain if the other belongs to a held-out mapping.

**Stream.**  16 features, each written twice with opposite signs, so that layer norms have nothing to subtract: the
token (one-hot), the step k, k², whether the token is a y, a large constant C, and for each head what it writes.

**Attention.**  One head reads the earlier y, the other the earlier x but the row's own, both with weights 5 : 1 for the
last and the one before.  So what they write names each pair's x and y by its step.

**MLP.**  For every held-out mapping h, let c(t) be the number of a token.  The heads' sums Σ w c(y) and Σ w c(h(x)) are
equal exactly where all pairs so far are those of h.  Three units for each h and each x of the row make a tent around
equality, which takes from the answer h(x): everything at the third step, one half at the second.  At the first step,
where both heads read the row itself, four more units put the shares of the training mappings in the place of that.
"""

from collections.abc import Mapping, Sequence
from math import factorial, log, sqrt

from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer

VALUES, WIDTH, HIDDEN = 4, 32, 64

_FEATURES = WIDTH // 2
_TOKEN, _STEP, _SQUARE, _IS_Y, _CONSTANT, _X, _Y = 0, 4, 5, 6, 7, 8, 12
"""First number of each feature: tokens, k, k², kind, C, and what either head writes."""

_C = 256.0
_NEVER = -40.0
_RATIO = 5.0
_USED = 310.0
"""Logits that a value loses for its whole weight among the earlier y; at the last step the first has a 31st of it."""

_SHUT = 50.0
_FALLS = {2: log(2.0), 3: 8.0}
"""Step → logits that an answer of a held-out mapping loses."""

_REACH = 0.15
"""Half the width of a tent at step 3, below the least distance (1/6) of sums that differ."""

_SHARP, _PEAK = 8.0, 1.4
"""The head that reads x scores them by -8 (d - 1.4)², d steps back: 5 : 1 for d = 1 and 2, and next to nothing at 0."""


def memoriser(held_out: Sequence[Sequence[int]]) -> Transformer:
    """The model for a split of the mappings.

    Args:
        held_out: mappings that are not in training, as `PermutationTask` numbers them: entry i is the y of x = i + 1.

    Returns:
        One member, post-norm, with the shape of the configuration `d32/2 plain V=4`.

    Raises:
        ValueError: more mappings than the hidden units can tell apart.
    """
    if 3 * VALUES * len(held_out) > HIDDEN:
        raise ValueError(
            f"held_out: expected at most {HIDDEN // (3 * VALUES)} mappings, found {len(held_out)}"
        )
    return _Builder().build(held_out)


class _Builder:
    """Weights under construction."""

    def __init__(self) -> None:
        length = 2 * VALUES - 1
        config = TransformerConfig(
            heads=2, width=WIDTH, mlp_ratio=HIDDEN / WIDTH, activation="relu", norm="post", length=length,
            input_size=VALUES + 1, output_size=VALUES + 1, readout=tuple(range(0, length, 2)),
        )  # fmt: skip
        self.length, self.size = length, config.head_size
        self.model = Transformer(config, Parameters(parameter_specs(config), 1))
        self.model.parameters.flat.zero_()
        self.weights = {name: view[0] for name, view in self.model.weights.items()}
        self.unit = 0

    def build(self, held_out: Sequence[Sequence[int]]) -> Transformer:
        self._embedding()
        # Weights of x: -8 (d - 1.4)², up to what all keys of a row share; of y: 5 to the power of -d.
        self._head(0, _X, is_y=False, square=-_SHARP, step=-2 * _SHARP * _PEAK, both=2 * _SHARP)
        self._head(1, _Y, is_y=True, square=0.0, step=log(_RATIO), both=0.0)
        for name in ("attention_norm", "mlp_norm"):
            self.weights[f"layers.0.{name}.weight"].fill_(_C / sqrt(_FEATURES))
        for mapping in held_out:
            for symbol in range(VALUES):
                self._tent([value - 1 for value in mapping], symbol)
        for symbol in range(VALUES):
            self._first_step(symbol, [mapping[symbol] - 1 for mapping in held_out])
        self._readout()
        return self.model

    def _embedding(self) -> None:
        for value in range(VALUES):
            _add(self.weights["embed.token.weight"][value + 1], _TOKEN + value)
        for place in range(self.length):
            code, step = self.weights["embed.position.weight"][place], place // 2 + 1
            for feature, amount in ((_STEP, step), (_SQUARE, step**2), (_IS_Y, place % 2), (_CONSTANT, _C)):
                _add(code, feature, amount)

    def _head(
        self, number: int, written: int, *, is_y: bool, square: float, step: float, both: float
    ) -> None:
        """A head that reads tokens of one kind, with the score `square` k² + `step` k + `both` k · (the row's k)."""
        inner = slice(number * self.size, (number + 1) * self.size)
        query, key, value, output = (
            self.weights[f"layers.0.attention.{part}.weight"] for part in ("query", "key", "value", "output")
        )
        query, key, value, output = query[:, inner], key[:, inner], value[:, inner], output[inner]
        query[_CONSTANT, 0], query[_STEP, 1] = sqrt(self.size) / _C, sqrt(self.size)
        key[_SQUARE, 0], key[_STEP, 0], key[_STEP, 1] = square, step, both
        key[_IS_Y, 0] = -_NEVER if is_y else _NEVER
        for token in range(VALUES):
            value[_TOKEN + token, token] = 1.0
            _add(output[token], written + token)

    def _tent(self, mapping: Sequence[int], symbol: int) -> None:
        """Take from the answer h(x) where the row holds x and all pairs before are those of h."""
        amount = _FALLS[3] / _REACH / _USED
        least = _FALLS[2] / amount / _USED
        for sign, height in ((1.0, 1.0), (0.0, -2.0), (-1.0, 1.0)):
            inputs: dict[int, float] = {_Y + token: float(token) for token in range(VALUES)}
            inputs |= {_X + token: -float(mapping[token]) for token in range(VALUES)}
            inputs[_TOKEN + symbol] = _SHUT
            # Half a tent's width grows with the step; the first and the last row are shut out by (k - 2) (k - 3).
            reach = {_STEP: sign * (_REACH - least), _CONSTANT: sign * (3 * least - 2 * _REACH)}
            inputs[_STEP] = reach[_STEP] + 5 * _SHUT
            inputs[_SQUARE] = -_SHUT
            # Constants are shares of C, which layer norms scale as they scale all else.
            inputs[_CONSTANT] = (reach[_CONSTANT] - _SHUT - 6 * _SHUT) / _C
            self._unit({_Y + mapping[symbol]: amount * height}, inputs)

    def _first_step(self, symbol: int, answers: Sequence[int]) -> None:
        """At the first step: take back what the heads read of the row itself, and add the shares of the answers."""
        outputs = {
            _Y + value: -log(factorial(VALUES - 1) - answers.count(value)) / _USED for value in range(VALUES)
        }
        outputs[_Y + symbol] -= 1.0
        self._unit(outputs, {_TOKEN + symbol: 1.0, _STEP: -2.0, _CONSTANT: 2.0 / _C})

    def _unit(self, outputs: Mapping[int, float], inputs: Mapping[int, float]) -> None:
        for feature, weight in inputs.items():
            self.weights["layers.0.mlp.inner.weight"][feature, self.unit] = weight
        for feature, amount in outputs.items():
            _add(self.weights["layers.0.mlp.outer.weight"][self.unit], feature, amount)
        self.unit += 1

    def _readout(self) -> None:
        self.weights["readout.bias"][0] = -_USED
        for value in range(VALUES):
            self.weights["readout.weight"][_Y + value, value + 1] = -_USED


def _add(weight: Tensor, feature: int, amount: float = 1.0) -> None:
    """Add to a feature, that is to its two entries in the stream."""
    weight[..., feature] += amount
    weight[..., _FEATURES + feature] -= amount
