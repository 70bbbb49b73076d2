"""Which heads of a language model retrieve: what they attend to, and what is lost without them.

Of a model nothing is assumed but that its attention gives weights in transformers' eager mode, and that an output map
takes the outputs of all heads side by side, however many of them share their keys and values.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, product
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hopscope.claims.intervals import crossed_interval, estimate, wilson
from hopscope.errors import UserError
from hopscope.language import local
from hopscope.language.questions import FREE_DEPTH, Mention, Question, Questions
from hopscope.rng import bits

Head = tuple[int, int]
"""Layer and head, both from 0."""

Heads = frozenset[Head]
Array = NDArray[np.float64]

SIZES, SHARE = (1, 2, 4, 8), 8
"""How many heads are taken out at once, and at most one of so many."""

_MAPS = ("o_proj", "c_proj", "out_proj", "dense", "wo")  # what output maps are called in a class …Attention…
_ATTEMPTS = 100  # to draw another set of random heads
_OTHER = "use another model or formulation"


class Text(NamedTuple):
    """A question in a model's tokens.

    Attributes:
        reads: target → row → the tokens that it should read.
        roles: of each token, what part it plays, the same in all questions of a kind.
        answers: of each acceptable answer the tokens that tell it from the others; `right` is the right one's place.
    """

    ids: local.Tokens
    reads: dict[str, dict[int, list[int]]]
    roles: list[str]
    answers: list[local.Tokens]
    right: int


def read(model: "Attentive", kind: Questions, question: Question) -> Text:
    """A question as it is put, in tokens: which rows should read which, and what part every token plays.

    Targets are called `row:target`.  Rows: `query`, the mentions of x_0 in the question; `answer`, the last token;
    `facts`, the mentions in the last telling of the facts.  Targets: `previous`, the token before; `same_symbol`, of
    query and answer where the fact of step 1 gives that symbol, of facts all earlier mentions; `pair_mate`, of the
    later mention of a fact its earlier ones; `query`; `hop_k`, what step k of the asked chain finds.  A row is the last
    token of a mention, a target all its tokens, in all tellings.

    `UserError`: a mention, or an answer, cannot be told in these tokens, or they are more than the model can read.
    """
    tokenizer, placed = model.tokenizer, kind.put(question)
    text, most = placed.text, local.context_of(model.model)
    ids, spans = local.encoded(tokenizer, text)
    tokens, owners = dict[Mention, list[int]](), dict[int, Mention]()
    for mention in placed.mentions:
        inside = [n for n, (start, end) in enumerate(spans) if start < mention.end and end > mention.start]
        whole = text[spans[inside[0]][0] : spans[inside[-1]][1]] if inside else ""
        free = all(owners.setdefault(n, mention) == mention for n in inside)
        known, written = tokenizer.unk_token_id not in [ids[n] for n in inside], text[slice(*mention[1:3])]
        if not (free and known) or re.sub(r"^\W+|\W+$", "", whole) != written:
            wanted = f"{written!r} (character {mention.start}) in whole, known tokens of its own"
            there = repr(whole) if known else "one that it does not know; try other depths or chains, or"
            raise UserError(f"{question.id}: expected {wanted}, found {there}{';' * known} {_OTHER}")
        tokens[mention] = inside
    told = local.continuations(tokenizer, text, question.acceptable, placed.joiner)
    answers = told and local.beginnings(told)
    if not answers:
        wanted = f"answers such as {question.answer!r} in known tokens that leave the text's alone"
        raise UserError(f"{question.id}: expected {wanted}, found others; {_OTHER}")
    if (found := len(ids) + max(map(len, answers)) - 1) > most:
        raise UserError(f"{model.name}: expected at most {most} tokens, found {found}; ask shorter questions")
    reads = _reads(question, placed.mentions, tokens, len(ids) - 1)
    return Text(ids, reads, _roles(owners, len(ids)), answers, question.acceptable.index(question.answer))


def _reads(
    question: Question, mentions: tuple[Mention, ...], tokens: dict[Mention, list[int]], last: int
) -> dict[str, dict[int, list[int]]]:
    found = defaultdict[str, dict[int, list[int]]](dict)

    def add(target: str, row: int, several: Iterable[Mention]) -> None:
        seen = {n for mention in several for n in tokens[mention] if n <= row}
        if seen:
            found[target][row] = sorted({*found[target].get(row, ()), *seen})

    facts = [mention for mention in mentions if mention.line >= 0]
    asked = [mention for mention in facts if mention.chain == question.chain]
    given = [each for each in asked if each.step == 1 and not each.found]
    for mention in (mention for mention in mentions if mention.line < 0):
        for name, row in (("query", tokens[mention][-1]), ("answer", last)):
            found[f"{name}:previous"][row] = [row - 1]
            add(f"{name}:same_symbol", row, [each for each in given if each.symbol == mention.symbol])
            for each in asked:
                add(f"{name}:hop_{each.step}", row, [each] if each.found else [])
        add("answer:query", last, [mention])
    for mention in (each for each in facts if each.telling == facts[-1].telling):
        row, line = tokens[mention][-1], [each for each in facts if each.line == mention.line]
        found["facts:previous"] |= {row: [row - 1]} if row else {}
        same = [each for each in facts if each.symbol == mention.symbol and each.start < mention.start]
        add("facts:same_symbol", row, same)
        if mention.start == max(each.start for each in line):
            other = [each for each in line if (each.symbol, each.found) != (mention.symbol, mention.found)]
            add("facts:pair_mate", row, other)
    return dict(found)


def _roles(owners: dict[int, Mention], length: int) -> list[str]:
    # Of each token, as what the last symbol before it stands there, and how far back; the last one plays the answer.
    roles, where, since = list[str](), "start", 0
    for n in range(length):
        owner = owners.get(n)
        if owner is not None:
            part, since = "found" if owner.found else "given", 0
            where = f"telling {owner.telling}, step {owner.step}, {part}"
        roles.append(f"{where} + {since}")
        since += owner is None or owners.get(n + 1) != owner
    return [*roles[:-1], "answer"]


class Attentive(NamedTuple):
    """A model, the output map of each layer's attention, the number of heads, and widths of the maps' inputs."""

    name: str
    model: Any
    tokenizer: Any
    layers: list[nn.Module]
    heads: int
    widths: list[int]


def attentive(name: str, model: Any, tokenizer: Any) -> Attentive:
    """Find the layers of a model of transformers that was loaded with eager attention."""
    # Of a model of images and texts, the part for texts.
    attentions = (one for one in model.get_decoder().modules() if "Attention" in type(one).__name__)
    layers = [getattr(one, map_) for one in attentions for map_ in _MAPS if hasattr(one, map_)]
    config = model.config.get_text_config()
    heads, whole = getattr(config, "num_attention_heads", 0), 0 < len(layers) == config.num_hidden_layers
    # A linear map has [out, in], a Conv1D [in, out].
    widths = [dict(one.named_parameters())["weight"].shape[isinstance(one, nn.Linear)] for one in layers]
    if not whole or not heads or any(width % heads for width in widths) or not tokenizer.is_fast:
        wanted = f"attention with an output map ({', '.join(_MAPS)}) of as many heads in every layer, a fast tokenizer"
        raise UserError(f"{name}: expected {wanted}, found {type(model).__name__}; use another model")
    return Attentive(name, model.eval(), tokenizer, layers, heads, widths)


class Scores(NamedTuple):
    """Attention to a target, mean over questions with the ends of its 95 % t interval, `[layer, head]`.

    `floor` is what a head pays that looks everywhere alike.
    """

    mean: Array
    low: Array
    high: Array
    floor: float
    questions: int

    @property
    def lift(self) -> Array:
        """How far each head is from the floor (0) to reading nothing but the target (1)."""
        return (self.mean - self.floor) / (1 - self.floor)

    def plain(self) -> dict[str, Any]:
        """Its fields as JSON has them."""
        return {name: np.asarray(value).tolist() for name, value in self._asdict().items()}


@contextmanager
def _hooked(model: Attentive, change: Callable[[int, Tensor], Any]) -> Iterator[None]:
    # Of each layer the outputs of its heads are told, and replaced by what is returned, if anything is.
    with ExitStack() as hooks, torch.no_grad():
        for at, map_ in enumerate(model.layers):
            hook = map_.register_forward_pre_hook(lambda _, given, at=at: change(at, given[0]))
            hooks.enter_context(hook)
        yield


def attention(model: Attentive, texts: Sequence[Text]) -> tuple[dict[str, Scores], dict[str, Tensor]]:
    """Attention of every head to every target; and by role (`""`: any) the mean output of all heads side by side."""
    from scipy.stats import sem, t

    paid, floors = defaultdict[str, list[Array]](list), defaultdict[str, list[float]](list)
    sums, counts, outputs = dict[str, Tensor](), Counter[str](), dict[int, Tensor]()

    def keep(layer: int, given: Tensor) -> None:
        outputs[layer] = given[0].float().cpu()

    with _hooked(model, keep):
        for text in texts:
            ids = torch.tensor([text.ids], device=model.model.device)
            weights = model.model(ids, use_cache=False, output_attentions=True).attentions
            if not weights or any(each is None for each in weights):
                wanted = "attention weights in eager mode, found none"
                raise UserError(f"{model.name}: expected {wanted}; use another model")
            for row, played in zip(torch.cat([*outputs.values()], -1), text.roles, strict=True):
                for role in ("", played):
                    sums[role] = sums[role] + row if role in sums else row
                    counts[role] += 1
            for name, rows in text.reads.items():
                # [layer, head] of each row
                found = [
                    [each[0, :, row, targets].float().sum(-1).tolist() for each in weights]
                    for row, targets in rows.items()
                ]
                paid[name].append(np.mean(found, 0))
                alike = [len(targets) / (row + 1) for row, targets in rows.items()]
                floors[name].append(np.mean(alike).item())
    scores = {}
    for name, several in paid.items():
        n, mean = len(several), np.mean(several, 0)
        half = t.ppf(0.975, n - 1) * sem(several) if n > 1 else 1.0
        low, high = np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)
        scores[name] = Scores(mean, low, high, np.mean(floors[name]).item(), n)
    return scores, {role: total / counts[role] for role, total in sums.items()}


def margins(model: Attentive, text: Text, ablations: Sequence[Heads], instead: Tensor) -> list[float]:
    """Log-odds of a question's right answer against the best other one, one for each ablation.

    Args:
        ablations: heads that are taken out at every token; none for all heads.
        instead: what stands in their place, `[token, heads side by side]`.
    """
    ends, found = np.cumsum([0, *model.widths]), list[float]()

    def change(heads: Heads, layer: int, given: Tensor) -> tuple[Tensor]:
        size, changed = model.widths[layer] // model.heads, given.clone()
        # Behind the text stand tokens of the answers, which count as its last.
        own = instead if given.shape[1] == len(instead) else instead[-1:]
        for first in (head * size for at, head in heads if at == layer):
            changed[..., first : first + size] = own[:, ends[layer] + first :][:, :size].to(given)
        return (changed,)

    for heads in ablations:
        with _hooked(model, partial(change, heads)):
            scores = local.log_probabilities(model.model, text.ids, text.answers).tolist()
        found.append(scores.pop(text.right) - max(scores))
    return found


def ranked(scores: Mapping[str, Scores]) -> list[Head]:
    """Heads by their largest lift at a target, largest first.

    But for the token before the row, whatever it is called ("b =" is the query too): that is what many heads read
    whatever the text says.
    """
    before = [each.mean for name, each in scores.items() if name.endswith(":previous")]
    other = (each for each in scores.values() if not any(np.array_equal(each.mean, one) for one in before))
    best = np.max([each.lift for each in other if each.floor < 1], axis=0)
    return sorted(np.ndindex(best.shape), key=lambda head: (-float(best[head]), head))


def matched(top: Sequence[Head], shape: tuple[int, int], draws: int, seed: int) -> list[Heads]:
    """Sets of other heads, as many in each layer as the top ones, all different; fewer where there are no more.

    Where a layer has not enough others, the missing ones come from the layers nearest to it.
    """
    taken, wanted = Counter(layer for layer, _ in top), Counter[int]()
    free = {layer: shape[1] - taken[layer] for layer in range(shape[0])}
    for layer in sorted(taken):
        for near in sorted(free, key=lambda other: (abs(other - layer), other)):
            n = min(free[near] - wanted[near], taken[layer])
            wanted[near] += n
            taken[layer] -= n
    rest = {layer: [(layer, n) for n in range(shape[1]) if (layer, n) not in top] for layer in +wanted}
    found = dict[Heads, None]()
    for attempt in range(_ATTEMPTS * draws):
        drawn = list[Head]()
        for layer, each in rest.items():
            words = bits(seed, "intervene", attempt, torch.arange(len(each)), layer)[:, 0]
            drawn += [each[place] for place in words.argsort(stable=True)[: wanted[layer]].tolist()]
        found[frozenset(drawn)] = None
        if len(found) == draws:
            break
    return [*found]


def score(
    model: Attentive | str, asked: Questions, *, method: Literal["mean", "zero"] = "mean",
    top: Sequence[int] = (), draws: int = 8, device: str = "cpu", precision: str = "float32",
    say: Callable[[str], object] = lambda words: None,
) -> dict[str, Any]:  # fmt: skip
    """Score every head of a model, and take the best ones out.

    Heads are found on the questions, and taken out while others are answered: as many of the same depth, and of each
    lesser one if it can be chosen.  The model chooses among the acceptable answers; nothing is sampled.

    Args:
        model: a name as `hopscope.language.local.load` takes it, or a model that is already loaded.
        asked: questions, whose seed is that of the random heads too.
        method: in a head's place stands its mean output at tokens of the same role where heads were found, or zero.
        top: how many are taken out at once; by default `SIZES`.
        draws: sets of random heads that the top ones are compared with; see `matched`.

    Returns:
        What the command prints as JSON (docs/heads.md): `targets` as of `Scores`, the first ten heads, and `ablation`
        by depth and number of heads, with accuracies, costs (`layers_cost`: of all heads of the top ones' layers), each
        as value, low, high, and the mean log-odds `margin`.
    """
    if isinstance(model, str):
        model = attentive(model, *local.load(model, device, attn_implementation="eager", dtype=precision))
    shape = len(model.layers), model.heads
    sizes = sorted({*top}) or [size for size in SIZES if size == 1 or size * SHARE <= prod(shape)]
    if sizes[0] < 1 or 2 * sizes[-1] > prod(shape):
        most = f"1 to {prod(shape) // 2}, half of the model's heads"
        raise UserError(f"top: expected {most}, found {[*top]}")
    if draws < 1:
        raise UserError(f"draws: expected at least 1, found {draws}; take more")
    tests = [(kind, [*kind.drawn()]) for kind in _tests(asked)]  # before any work: there may be too few
    say(f"attention, {asked.count} questions")
    scores, means = attention(model, [read(model, asked, question) for question in asked.drawn()])
    order, costs = ranked(scores), list[dict[str, Any]]()
    # By number of heads: the top ones, all of their layers, and others.
    sets = dict[int, list[Heads]]()
    for k in sizes:
        whole = frozenset(product({layer for layer, _ in order[:k]}, range(model.heads)))
        sets[k] = [frozenset(order[:k]), whole, *matched(order[:k], shape, draws, asked.seed)]
    every = [frozenset[Head](), *chain(*sets.values())]
    for kind, several in tests:
        found = list[list[float]]()
        for number, question in enumerate(several, 1):
            say(f"without heads, depth {kind.depth} of {asked.depth}: question {number} of {len(several)}")
            text = read(model, kind, question)
            instead = torch.stack([means.get(role, means[""]) for role in text.roles])
            found.append(margins(model, text, every, instead * (method == "mean")))
        whole_model, *others = np.array(found).T
        guess = float(np.mean([1 / len(question.acceptable) for question in several]))
        for k, out in sets.items():
            own, others = others[: len(out)], others[len(out) :]
            cost = _cost(np.array([whole_model, *own]))
            costs.append({"depth": kind.depth, "k": k, "heads": order[:k], "guess": guess, **cost})
    return {
        "model": model.name, "layers": shape[0], "heads": shape[1], "method": method,
        "targets": {name: each.plain() for name, each in scores.items()}, "top": order[:10], "ablation": costs,
    }  # fmt: skip


def _tests(asked: Questions) -> Iterator[Questions]:
    # Questions that are answered without heads, by depth.
    for depth in range(1, asked.depth) if asked.formulation in FREE_DEPTH else ():
        lesser = asked.model_copy(update={"depth": depth, "start": 0})
        yield lesser.model_copy(update={"count": min(asked.count, lesser.space)})
    yield asked.model_copy(update={"start": asked.start + asked.count})


def _cost(margin: Array) -> dict[str, Any]:
    # Of margins with all heads, without the top ones, all of their layers, and others, `[ablation, question]`.
    all_, top, layers, *others = (margin > 0).astype(np.float64)
    found, shares = dict[str, Any](), (("all", all_), ("top", top))
    found |= {name: [each.mean().item(), *wilson(int(each.sum()), len(each))] for name, each in shares}
    for name, several in (
        ("random", others), ("top_cost", [all_ - top]), ("layers_cost", [all_ - layers]),
        ("random_cost", [all_ - each for each in others]),
    ):  # fmt: skip
        places = [*zip(*np.ndindex(len(several), len(all_)), strict=True)]
        values = np.concatenate(several)
        ends = estimate(values)[1] if len(several) == 1 else crossed_interval(values, *places)
        found[name] = [float(values.mean()), *(ends or (None, None))]
    means = {"all": margin[0], "top": margin[1], "random": margin[3:]}
    margins = {name: float(each.mean()) for name, each in means.items()}
    return {"questions": len(all_), "draws": len(others), **found, "margin": margins}
