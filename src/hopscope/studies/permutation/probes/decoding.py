"""What the last row knows before and after its MLP: linear and MLP probes, fitted for all members at once.

A probe is trained on sequences of training mappings and scored on sequences of held-out ones, so that it cannot know
a mapping by heart.  The MLP probe has one hidden layer of the model's own MLP size: it may do what the model's MLP can
do, and no more.  So "the linear probe fails before the MLP and succeeds after it, the MLP probe succeeds before it"
says that selecting the right value is what the model's MLP does.

What a probe finds is *there*, not necessarily *used*; and an MLP probe of an untrained model also finds much, because
random features keep most of their input.  Hence the floors and controls beside every score, and hence the same
measurement of the untrained model, which is the caller's second call.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope import rng
from hopscope.models import lookup
from hopscope.models.linear import linear, norm
from hopscope.models.resolving import visible_keys
from hopscope.models.transformer import Transformer
from hopscope.probes.retrieval import json_numbers
from hopscope.studies.permutation.probes.predictions import CHUNK, with_repeats
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask

TRAINING_SEQUENCES = 8192
"""Most sequences (of training mappings) that a probe learns from."""

HELD_OUT_SEQUENCES = 2880
"""Most sequences (of held-out mappings) that a probe is scored on: all plain ones of V = 5."""

_LARGEST_SET = 50_000
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_SMALLEST_DEVIATION = 1e-6
# Draws of the stream "probe": what each block of an address is for.
_BATCHES, _INNER, _OUTER, _SHUFFLE, _SUBSET = range(5)

_KINDS = ("repeats", "plain")
_SITES = ("before", "after", "earlier_row")

# Activations of the last row.


class RowActivations(NamedTuple):
    """Activations of one row of a one-layer model.

    Attributes:
        before: what its MLP reads: the stream after attention and, for post-norm, its norm (for pre-norm: the norm
            before the MLP).
        after: what the readout reads: the stream after the MLP and its norm.  Equal to the stream after attention
            (normed) for a model without MLP.
    """

    before: Float[Tensor, "member batch model"]
    after: Float[Tensor, "member batch model"]


def row_activations(
    model: Transformer, inputs: Int[Tensor, "#member batch position"], row: int
) -> RowActivations:
    """Activations of one row, for models of one layer that read tokens (attention by look-up, see `lookup`).

    Raises:
        ValueError: the model has more layers, or reads vectors.
    """
    config, weights = model.config, model.weights
    if config.layers != 1 or config.input_kind != "tokens":
        raise ValueError(
            f"row activations: expected a one-layer model of tokens, found {config.layers} layers of "
            f"{config.input_kind}"
        )
    hidden = ~visible_keys(config.length, config.causal, inputs.device)
    mask = torch.zeros(hidden.shape, device=inputs.device).masked_fill_(hidden, -torch.inf)
    asked = torch.tensor([row], device=inputs.device)
    with torch.no_grad():
        stream, attended = lookup.attended(config, weights, mask, asked, inputs.expand(model.members, -1, -1))
        stream = stream + attended
        if config.norm == "post":
            stream = norm(weights, "layers.0.attention_norm", stream)
        before = stream
        if config.mlp_size:
            before = norm(weights, "layers.0.mlp_norm", stream) if config.norm == "pre" else stream
            activation = functional.relu if config.activation == "relu" else functional.gelu
            inner = activation(linear(weights, "layers.0.mlp.inner", before))
            stream = stream + linear(weights, "layers.0.mlp.outer", inner)
            if config.norm == "post":
                stream = norm(weights, "layers.0.mlp_norm", stream)
        after = norm(weights, "final_norm", stream) if config.norm == "pre" else stream
    return RowActivations(before[:, 0], after[:, 0])


# Probes.


class Fit(NamedTuple):
    """How probes are fitted: Adam on mini-batches drawn with replacement, cosine rate after a linear warm-up.

    The same budget for every probe: what it finds is what can be decoded with this effort.  More effort finds ever
    weaker traces, since activations have no noise.

    Attributes:
        steps, batch: optimiser steps, and sequences in each.
        rate: largest learning rate.
        warmup: steps of linear warm-up.
        seed: of the mini-batches, of the initial weights and of shuffled labels.
    """

    steps: int = 600
    batch: int = 256
    rate: float = 0.01
    warmup: int = 50
    seed: int = 0

    def rate_at(self, step: int) -> float:
        """Learning rate of step 0, 1, 2 …."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.rate * warm * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))

    def picks(self, count: int, device: torch.device) -> Int[Tensor, "step batch"]:
        """Which of `count` sequences each step learns from."""
        steps = torch.arange(self.steps, device=device)[:, None]
        words = rng.bits(self.seed, "probe", steps, torch.arange(self.batch, device=device), block=_BATCHES)
        return rng.integers(words[..., 0], words[..., 1], count)


class Probes(NamedTuple):
    """Fitted probes, one for every question and member.

    Attributes:
        means, deviations: of the training features; features are standardised by them.
        weights: `[question, member, in, out]` and bias `[question, member, 1, out]` of each layer in turn.
    """

    means: list[Float[Tensor, "member 1 feature"]]
    deviations: list[Float[Tensor, "member 1 feature"]]
    weights: list[Float[Tensor, "question member _ _"]]

    def accuracy(
        self, question: int, features: Float[Tensor, "member sample feature"], labels: Int[Tensor, " sample"]
    ) -> Float[Tensor, " member"]:
        """Share of samples whose most probable class is the label (float64); NaN for a member that is not finite."""
        scaled = (features - self.means[question]) / self.deviations[question]
        logits = _logits(scaled, [weight[question] for weight in self.weights])
        finite = logits.isfinite().all(-1).all(-1)
        return torch.where(finite, (logits.argmax(-1) == labels).double().mean(-1), torch.nan)


def fit_probes(
    features: Sequence[Float[Tensor, "member _ feature"]],
    labels: Sequence[Int[Tensor, " _"]],
    classes: int,
    hidden: int | None,
    fit: Fit,
) -> Probes:
    """Fit one probe for every question and member, all of them as one tensor program.

    Args:
        features: of every question; as many samples as it has labels.
        labels: of every question, 0 … classes - 1, the same for all members.
        classes: number of classes.
        hidden: hidden size of MLP probes (ReLU); None for linear ones (multinomial logistic regression).
        fit: how.

    All probes start from the same weights (linear: from zero), so that a probe depends neither on the other
    questions nor on the other members.
    """
    sites, site = _distinct(features)
    means = [part.mean(1, keepdim=True) for part in sites]
    # A feature that never varies tells nothing; without the bound it would be 0 / 0.
    deviations = [part.std(1, correction=0, keepdim=True).clamp(min=_SMALLEST_DEVIATION) for part in sites]
    scaled = [(part - m) / d for part, m, d in zip(sites, means, deviations, strict=True)]
    weights = _initial(len(labels), sites[0].shape[0], sites[0].shape[-1], classes, hidden, fit)
    weights = [weight.to(sites[0].device).requires_grad_() for weight in weights]
    moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]
    picks = [fit.picks(part.shape[1], part.device) for part in sites]
    for step in range(fit.steps):
        x = torch.stack([part.index_select(1, pick[step]) for part, pick in zip(scaled, picks, strict=True)])[
            site
        ]
        y = torch.stack([part[picks[place][step]] for part, place in zip(labels, site, strict=True)])
        logits = _logits(x, weights).flatten(0, 2)
        wanted = y[:, None].expand(x.shape[:-1]).flatten()
        loss = functional.cross_entropy(logits, wanted, reduction="sum") / fit.batch
        gradients = torch.autograd.grad(loss, weights)
        _adam(weights, gradients, moments, step, fit.rate_at(step))
    return Probes(
        [means[place] for place in site],
        [deviations[place] for place in site],
        [weight.detach() for weight in weights],
    )


def _distinct(features: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """The tensors without repetition, and which of them each question reads: several questions share features."""
    places: dict[int, int] = {}
    site = [places.setdefault(id(part), len(places)) for part in features]
    return [features[site.index(place)] for place in range(len(places))], site


def _initial(
    questions: int, members: int, size: int, classes: int, hidden: int | None, fit: Fit
) -> list[Float[Tensor, "question member _ _"]]:
    if hidden is None:
        drawn = [torch.zeros(size, classes), torch.zeros(1, classes)]
    else:
        seed = torch.tensor([fit.seed])
        inner = rng.normal_tensor(seed, "probe", 0, (size, hidden), _INNER)[0] * (2.0 / size) ** 0.5
        outer = rng.normal_tensor(seed, "probe", 0, (hidden, classes), _OUTER)[0] * hidden**-0.5
        drawn = [inner, torch.zeros(1, hidden), outer, torch.zeros(1, classes)]
    return [weight.expand(questions, members, *weight.shape).clone() for weight in drawn]


def _logits(
    x: Float[Tensor, "*probe sample feature"], weights: Sequence[Tensor]
) -> Float[Tensor, "*probe sample class"]:
    for layer in range(0, len(weights), 2):
        x = (x if layer == 0 else x.relu()) @ weights[layer] + weights[layer + 1]
    return x


def _adam(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[tuple[Tensor, Tensor]],
    step: int,
    rate: float,
) -> None:
    """One step of Adam (Kingma and Ba 2015), in place."""
    first_share, second_share = (1.0 - beta ** (step + 1) for beta in _BETAS)
    with torch.no_grad():
        for weight, gradient, (first, second) in zip(weights, gradients, moments, strict=True):
            first.lerp_(gradient, 1.0 - _BETAS[0])
            second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1.0 - _BETAS[1])
            weight.addcdiv_(first, (second / second_share).sqrt_().add_(_EPSILON), value=-rate / first_share)


# The measurement.


class _Half(NamedTuple):
    """Training or held-out sequences of one kind, and what is read off them.

    Attributes:
        sites: activations `[member, sample, model]`, by name: of the last row, and of the row one step before.
        answer: the right value at the last step, from 0.
        shown: the value of each slot before, from 0.
        pointer: the slot (from 0) that the last x repeats; the last slot, which is itself, stands for none.
    """

    sites: dict[str, Float[Tensor, "member sample model"]]
    answer: Int[Tensor, " sample"]
    shown: Int[Tensor, "sample slot"]
    pointer: Int[Tensor, " sample"]


_Labelled = tuple[Float[Tensor, "member _ model"], Int[Tensor, " _"]]
"""Features, and what a probe shall tell from them."""

_Questions = dict[str, tuple[_Labelled, _Labelled]]
"""Training and held-out samples of one probe, by what it is asked."""


def measure_decoding(
    model: Transformer,
    task: PermutationTask,
    *,
    training: int = TRAINING_SEQUENCES,
    held_out: int = HELD_OUT_SEQUENCES,
    hidden: int | None = None,
    fit: Fit | None = None,
) -> dict[str, Any]:
    """What can be decoded from the last row, before its MLP (*before*) and after it (*after*).

    Args:
        model: the members (one layer, tokens); any checkpoint, the untrained one as well.
        task: what they learned; repeats are asked at the last slot and of every slot before, whatever it trains on.
        training, held_out: most sequences of each kind, a fixed random part where there are more.
        hidden: hidden size of the MLP probes; by default that of the model's MLP (its width if it has none).
        fit: how probes are fitted.

    Returns:
        JSON values.  Each score is `{"held_out": […], "train": […]}`, accuracies by member (None for one that is not
        finite); `{"linear": score, "mlp": score}` is a pair of scores.

        * `answer.repeats`, `answer.plain`: the right y at the last step, of sequences with a repeat (the recalled
          value) and without (the unused one), as pairs `before` and `after`; `earlier_row`, a control that must show
          nothing, is the input of the MLP one step before, whose row has not seen the last x.
        * `shuffled`: `answer.repeats.before` with the training labels exchanged at random among the sequences, a
          second control; a pair.
        * `pointer`: which slot the last x repeats, or none; a pair, before the MLP.
        * `history`: a list by slot of pairs: the y of that slot, before the MLP, in sequences with a repeat.
        * `floors`: `uniform` 1/V; `used` 1/(V - 1), knowing which values were shown and nothing more;
          `earlier_row`, the most that can be known one step before; `majority` of each kind of label.
        * `hidden`, `sequences`, `fit`: sizes and how it was fitted.
    """
    fit = fit or Fit()
    hidden = hidden if hidden is not None else _hidden(model)
    halves = _halves(model, task, training, held_out)
    questions = _answer_questions(halves) | _further_questions(halves, fit.seed)
    pairs = _pairs(questions, task.config.values, hidden, fit)
    return {
        "answer": _answer(pairs),
        "shuffled": pairs["shuffled"],
        "pointer": pairs["pointer"],
        "history": [pairs[f"history {slot}"] for slot in range(task.config.values - 1)],
        "floors": _floors(task.config.values, questions),
        "hidden": hidden,
        "sequences": {
            kind: dict(zip(("train", "held_out"), (len(part.answer) for part in parts), strict=True))
            for kind, parts in halves.items()
        },
        "fit": {"steps": fit.steps, "batch": fit.batch, "rate": fit.rate, "seed": fit.seed},
    }


def measure_answer(model: Transformer, task: PermutationTask, *, fit: Fit | None = None) -> dict[str, Any]:
    """The entry `answer` of `measure_decoding`, number for number, without the effort of the others.

    Args:
        model, task, fit: as there.
    """
    fit = fit or Fit()
    questions = _answer_questions(_halves(model, task, TRAINING_SEQUENCES, HELD_OUT_SEQUENCES))
    return _answer(_pairs(questions, task.config.values, _hidden(model), fit))


def chosen_sequences(task: PermutationTask, kind: str, split: str, most: int) -> Batch:
    """A fixed random part of the sequences of a split (`"plain"`, or `"repeats"` at the last slot), or all of them."""
    batch = with_repeats(task).evaluation(kind, split=split, limit=max(most, _LARGEST_SET))
    count = batch.inputs.shape[1]
    if count <= most:
        return batch
    return batch.take(_shuffled(count, task.config.split_seed, _SUBSET, batch.inputs.device)[:most])


def _shuffled(count: int, seed: int, block: int, device: torch.device) -> Int[Tensor, " count"]:
    words = rng.bits(seed, "probe", 0, torch.arange(count, device=device), block=block)
    return torch.argsort((words[:, 0] << 31) | (words[:, 1] >> 1), stable=True)


def _hidden(model: Transformer) -> int:
    return model.config.mlp_size or model.config.width


def _halves(
    model: Transformer, task: PermutationTask, training: int, held_out: int
) -> dict[str, tuple[_Half, _Half]]:
    return {
        kind: (_half(model, task, kind, "train", training), _half(model, task, kind, "held_out", held_out))
        for kind in _KINDS
    }


def _half(model: Transformer, task: PermutationTask, kind: str, split: str, most: int) -> _Half:
    batch = chosen_sequences(task, kind, split, most)
    rows = task.positions - 1, task.positions - 3
    last, earlier = (
        [row_activations(model, part.inputs, row) for part in batch.pieces(CHUNK)] for row in rows
    )
    copy = batch.relations["same_symbol"][0, :, -1]
    return _Half(
        sites={
            "before": torch.cat([part.before for part in last], 1),
            "after": torch.cat([part.after for part in last], 1),
            "earlier_row": torch.cat([part.before for part in earlier], 1),
        },
        answer=batch.targets[0, :, -1] - 1,
        shown=batch.inputs[0, :, 1::2] - 1,
        pointer=torch.where(copy >= 0, copy // 2, task.config.values - 1),
    )


def _answer_questions(halves: Mapping[str, tuple[_Half, _Half]]) -> _Questions:
    return {
        f"{kind} {site}": ((train.sites[site], train.answer), (held_out.sites[site], held_out.answer))
        for kind, (train, held_out) in halves.items()
        for site in _SITES
    }


def _further_questions(halves: Mapping[str, tuple[_Half, _Half]], seed: int) -> _Questions:
    train, held_out = halves["repeats"]
    before = train.sites["before"], held_out.sites["before"]
    order = _shuffled(len(train.answer), seed, _SHUFFLE, train.answer.device)
    history: _Questions = {
        f"history {slot}": ((before[0], train.shown[:, slot]), (before[1], held_out.shown[:, slot]))
        for slot in range(train.shown.shape[1])
    }
    train_plain, held_out_plain = halves["plain"]
    return {
        "shuffled": ((before[0], train.answer[order]), (before[1], held_out.answer)),
        **history,
        "pointer": (_mixed(train, train_plain), _mixed(held_out, held_out_plain)),
    }


def _mixed(repeats: _Half, plain: _Half) -> _Labelled:
    """Features and pointers of both kinds of sequence, with one plain one for V - 1 with a repeat where possible."""
    count = min(len(plain.pointer), len(repeats.pointer) // repeats.shown.shape[1])
    features = torch.cat((repeats.sites["before"], plain.sites["before"][:, :count]), 1)
    return features, torch.cat((repeats.pointer, plain.pointer[:count]))


def _pairs(questions: _Questions, classes: int, hidden: int, fit: Fit) -> dict[str, dict[str, Any]]:
    """Scores of a linear and of an MLP probe for every question."""
    scores: dict[str, dict[str, Any]] = {name: {} for name in questions}
    features, labels = zip(*(train for train, _ in questions.values()), strict=True)
    for kind, size in (("linear", None), ("mlp", hidden)):
        probes = fit_probes(features, labels, classes, size, fit)
        for number, (name, (train, held_out)) in enumerate(questions.items()):
            scores[name][kind] = {
                split: json_numbers(probes.accuracy(number, *samples))
                for split, samples in (("held_out", held_out), ("train", train))
            }
    return scores


def _answer(pairs: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: {site: pairs[f"{kind} {site}"] for site in _SITES} for kind in _KINDS}


def _floors(values: int, questions: _Questions) -> dict[str, Any]:
    majority = {name: _majority(of_held_out) for name, (_, (_, of_held_out)) in questions.items()}
    return {
        "uniform": 1 / values,
        "used": 1 / (values - 1),
        "earlier_row": {"repeats": 1 / (values - 1), "plain": 1 / 2},
        "majority": {
            **{kind: majority[f"{kind} before"] for kind in _KINDS},
            "pointer": majority["pointer"],
            "history": [majority[f"history {slot}"] for slot in range(values - 1)],
        },
    }


def _majority(labels: Int[Tensor, " sample"]) -> float:
    return int(labels.bincount().max()) / labels.numel()
