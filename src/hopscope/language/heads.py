"""Which heads of a language model retrieve: what they attend to, and what is lost without them.

Of a model nothing is assumed but that its attention gives weights in transformers' eager mode, and that an output map
takes the outputs of all heads side by side, however many of them share their keys and values.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hopscope.claims.intervals import crossed_interval, estimate, wilson
from hopscope.errors import UserError
from hopscope.language.local import context_of, load, log_probabilities
from hopscope.language.questions import FREE_DEPTH, Questions
from hopscope.language.reading import Asked, Text, read
from hopscope.rng import bits
from hopscope.runs import write_atomic

Head = tuple[int, int]
"""Layer and head, both from 0."""

Heads = frozenset[Head]
Array = NDArray[np.float64]

SIZES, SHARE = (1, 2, 4, 8), 8
"""How many heads are taken out at once, and at most one of so many."""

_MAPS = ("o_proj", "c_proj", "out_proj", "dense", "wo")  # what output maps are called in a class …Attention…
_ATTEMPTS, _FLOATS = 100, 1 << 27


class Attentive(NamedTuple):
    """A model, the output map of each layer's attention, the number of heads, and widths of the maps' inputs."""

    name: str
    model: Any
    tokenizer: Any
    layers: list[nn.Module]
    heads: int
    widths: list[int]


def attentive(name: str, model: Any, tokenizer: Any) -> Attentive:
    """Find the layers of a model of transformers that was loaded with eager attention.

    Raises:
        UserError: it has none of the kind, or its tokenizer does not say where tokens stand.
    """
    attentions = (one for one in model.modules() if "Attention" in type(one).__name__)
    layers = [getattr(one, map_) for one in attentions for map_ in _MAPS if hasattr(one, map_)]
    heads = getattr(model.config.get_text_config(), "num_attention_heads", 0)
    # A linear map has [out, in], a Conv1D [in, out].
    widths = [dict(one.named_parameters())["weight"].shape[isinstance(one, nn.Linear)] for one in layers]
    if not layers or not heads or any(width % heads for width in widths) or not tokenizer.is_fast:
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


@contextmanager
def _hooked(model: Attentive, change: Callable[[int, Tensor], Any]) -> Iterator[None]:
    # Of each layer the outputs of its heads are told, and replaced by what is returned, if anything is.
    def hook(number: int) -> Any:
        return lambda module, given: change(number, given[0])

    handles = [map_.register_forward_pre_hook(hook(number)) for number, map_ in enumerate(model.layers)]
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()


def attention(model: Attentive, texts: Sequence[Text]) -> tuple[dict[str, Scores], dict[str, Tensor]]:
    """Attention of every head to every target; and by role the mean output of all heads side by side (`""`: any role).

    Raises:
        UserError: the model gives no attention weights.
    """
    from scipy.stats import t as student

    paid, floors = defaultdict[str, list[Array]](list), defaultdict[str, list[float]](list)
    sums, counts = dict[str, Tensor](), Counter[str]()
    for text in texts:
        outputs = dict[int, Tensor]()

        def keep(layer: int, given: Tensor, outputs: dict[int, Tensor] = outputs) -> None:
            outputs[layer] = given[0].float().cpu()

        with _hooked(model, keep):
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
            floors[name].append(float(np.mean([len(targets) / (row + 1) for row, targets in rows.items()])))
    scores = {}
    for name, several in paid.items():
        n, mean = len(several), np.mean(several, 0)
        half = student.ppf(0.975, n - 1) * np.std(several, 0, ddof=1) / np.sqrt(n) if n > 1 else 1.0
        low, high = np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)
        scores[name] = Scores(mean, low, high, float(np.mean(floors[name])), n)
    return scores, {role: total / counts[role] for role, total in sums.items()}


def margins(model: Attentive, text: Text, ablations: Sequence[Heads], instead: Tensor) -> Array:
    """Log-odds of a question's right answer against the best other one, `[ablation]`.

    Args:
        ablations: heads that are taken out at every token; none for all heads.
        instead: what stands in their place, `[token, heads side by side]`.
    """
    device, ends, found = model.model.device, np.cumsum([0, *model.widths]), list[Tensor]()
    most = max(1, _FLOATS // (model.heads * len(text.ids) ** 2))
    for start in range(0, len(ablations), most):  # rows of a batch are the same text without different heads
        several = ablations[start : start + most]
        out = torch.zeros(len(several), len(model.layers), model.heads, dtype=torch.bool)
        for row, layer, head in ((row, *head) for row, heads in enumerate(several) for head in heads):
            out[row, layer, head] = True

        def change(layer: int, given: Tensor, out: Any = out) -> tuple[Tensor]:
            mask = out[:, layer].repeat_interleave(model.widths[layer] // model.heads, -1).to(device)
            own = instead[:, ends[layer] : ends[layer + 1]].to(given)
            # Behind the text stand tokens of the answers, which count as its last.
            own = own if given.shape[1] == len(own) else own[-1:]
            return (torch.where(mask.repeat_interleave(len(given) // len(mask), 0)[:, None], own, given),)

        with _hooked(model, change):
            found.append(log_probabilities(model.model, text.ids, text.answers, len(several)))
    scores = torch.cat(found).double().numpy()
    return np.asarray(scores[:, text.right] - np.delete(scores, text.right, 1).max(1))


def ranked(scores: Mapping[str, Scores], target: str = "any") -> list[Head]:
    """Heads by their lift at a target, largest first.

    Of `any` the best target counts, but for the token before the row, whatever it is called ("b =" is the query too):
    that is what many heads read whatever the text says.

    Raises:
        UserError: there is no such target.
    """
    before = [each.mean for name, each in scores.items() if name.endswith(":previous")]
    other = [name for name in scores if not any(np.array_equal(scores[name].mean, one) for one in before)]
    names = [name for name in other if scores[name].floor < 1] if target == "any" else [target]
    if not names or any(name not in scores for name in names):
        known = ", ".join(scores)
        raise UserError(f"rank: expected any or one of {known}, found {target!r}; take one of them")
    best = np.max([scores[name].lift for name in names], axis=0)
    order = sorted(np.ndindex(best.shape), key=lambda head: (-float(best[head]), head))
    return [(int(layer), int(head)) for layer, head in order]


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
            order = words.argsort(stable=True)
            drawn += [each[place] for place in order[: wanted[layer]].tolist()]
        found[frozenset(drawn)] = None
        if len(found) == draws:
            break
    return [*found]


def score(
    model: Attentive | str, asked: Questions | Sequence[Asked], *, chat: bool = False, rank: str = "any",
    method: Literal["mean", "zero"] = "mean", top: Sequence[int] = (), draws: int = 8, device: str = "cpu",
    precision: str = "float32", keep: Path | None = None, say: Callable[[str], object] = lambda words: None,
) -> dict[str, Any]:  # fmt: skip
    """Score every head of a model, and take the best ones out.

    Heads are found on the questions, and taken out while others are answered: as many of the same depth, and of each
    lesser one if it can be chosen.  The model chooses among the acceptable answers; nothing is sampled.

    Args:
        model: a name as `hopscope.language.local.load` takes it, or a model that is already loaded.
        asked: questions, whose seed is that of the random heads too; or passages, which serve both ends.
        chat: whether prompts go through the tokenizer's chat template.
        rank: target by which heads are ranked; see `ranked`.
        method: in a head's place stands its mean output at tokens of the same role where heads were found, or zero.
        top: how many are taken out at once; by default `SIZES`.
        draws: sets of random heads that the top ones are compared with; see `matched`.
        device, precision: where, and number format of weights and activations.
        keep: a file for what was found of every question, so that a call that was ended goes on.
        say: is told in words how far it is.

    Returns:
        JSON values: `layers`, `heads`; `targets`: name → `mean`, `low`, `high` `[layer][head]`, `floor`, `questions`;
        `top`: the first ten heads; `ablation`: by depth and number of heads `k`, each as value, low, high: accuracies
        `all`, `top`, `random` and costs `top_cost`, `random_cost`, `layers_cost` (all heads of the layers of the top
        ones); mean log-odds `margin`, and what each question lost, `lost`.

    Raises:
        UserError: the model or a question cannot be used, or a number is out of range.
    """
    if isinstance(model, str):
        model = attentive(model, *load(model, device, attn_implementation="eager", dtype=precision))
    shape, seed = (len(model.layers), model.heads), asked.seed if isinstance(asked, Questions) else 0
    sizes = sorted({*top}) or [size for size in SIZES if size == 1 or size * SHARE <= prod(shape)]
    if sizes[0] < 1 or 2 * sizes[-1] > prod(shape):
        most = f"1 to {prod(shape) // 2}, half of the model's heads"
        raise UserError(f"top: expected {most}, found {[*top]}; take fewer")
    on, tests = _drawn(asked)
    texts = [_read(model, each, chat) for each in on]
    say(f"attention, {len(texts)} questions")
    scores, means = attention(model, texts)
    order, costs = ranked(scores, rank), list[dict[str, Any]]()
    sets = [_sets(order[:k], shape, draws, seed) for k in sizes]
    every = [frozenset[Head](), *(heads for several in sets for heads in several)]
    weights = round(float(means[""].double().sum()), 2)  # other ones may have the same name
    of = [model.name, weights, precision, method, [*map(sorted, every)], [text.ids for text in texts]]
    known: dict[str, list[float]] = json.loads(keep.read_bytes()) if keep and keep.is_file() else {}
    for depth, several in tests.items():
        found, at = list[list[float]](), 1
        for number, each in enumerate(several, 1):
            say(f"without heads, depth {depth} of {max(tests)}: question {number} of {len(several)}")
            text = _read(model, each, chat)
            key = hashlib.sha256(json.dumps([of, text.ids, text.answers, text.right]).encode()).hexdigest()
            if key not in known:
                instead = torch.stack([means.get(role, means[""]) for role in text.roles])
                known[key] = margins(model, text, every, instead * (method == "mean")).tolist()
                if keep:
                    write_atomic(keep, json.dumps(known).encode())
            found.append(known[key])
        guess = float(np.mean([1 / len(question.acceptable) for question, _ in several]))
        for k, out in zip(sizes, sets, strict=True):
            margin = np.array(found).T[[0, *range(at, at + len(out))]]
            costs.append({"depth": depth, "k": k, "heads": order[:k], "guess": guess, **_cost(margin)})
            at += len(out)
    if keep:
        keep.unlink(missing_ok=True)
    lists = ("mean", "low", "high")
    targets = {
        name: each._asdict() | {end: getattr(each, end).tolist() for end in lists}
        for name, each in scores.items()
    }
    return {
        "model": model.name, "layers": shape[0], "heads": shape[1], "rank": rank, "method": method,
        "targets": targets, "top": order[:10], "ablation": costs,
    }  # fmt: skip


def _read(model: Attentive, asked: Asked, chat: bool) -> Text:
    text, most = read(model.tokenizer, *asked, chat), context_of(model.model)
    if (found := len(text.ids) + max(map(len, text.answers)) - 1) > most:
        raise UserError(f"{model.name}: expected at most {most} tokens, found {found}; ask shorter questions")
    return text


def _drawn(asked: Questions | Sequence[Asked]) -> tuple[list[Asked], dict[int, list[Asked]]]:
    if not isinstance(asked, Questions):
        return [*asked], {asked[0][0].depth: [*asked]}

    def of(**changes: Any) -> list[Asked]:
        kind = Questions(**{**asked.model_dump(), **changes})
        return [(question, kind.put(question)) for question in kind.drawn()]

    tests = {asked.depth: of(start=asked.start + asked.count)}
    for depth in range(1, asked.depth) if asked.formulation in FREE_DEPTH else ():
        space = asked.model_copy(update={"depth": depth}).space
        tests[depth] = of(depth=depth, count=min(asked.count, space))
    return of(), dict(sorted(tests.items()))


def _sets(top: Sequence[Head], shape: tuple[int, int], draws: int, seed: int) -> list[Heads]:
    # The top heads, all heads of their layers, and others.
    whole = frozenset(product({layer for layer, _ in top}, range(shape[1])))
    return [frozenset(top), whole, *matched(top, shape, draws, seed)]


def _cost(margin: Array) -> dict[str, Any]:
    # Of margins with all heads, and without those of `_sets`.
    all_, top, layers, *others = (margin > 0).astype(np.float64)
    found: dict[str, Any] = {
        name: [each.mean().item(), *wilson(int(each.sum()), len(each))]
        for name, each in (("all", all_), ("top", top))
    }
    lost = {name: [all_ - each for each in several] for name, several in
            (("top_cost", [top]), ("layers_cost", [layers]), ("random_cost", others))}  # fmt: skip
    for name, several in {"random": others, **lost}.items():
        places = [*zip(*np.ndindex(len(several), len(all_)), strict=True)]
        values = np.concatenate(several)
        ends = estimate(values)[1] if len(several) == 1 else crossed_interval(values, *places)
        found[name] = [float(values.mean()), *(ends or (None, None))]
    means = {"all": margin[0], "top": margin[1], "random": margin[3:]}
    return {
        "questions": len(all_), "draws": len(others), **found,
        "margin": {name: float(each.mean()) for name, each in means.items()},
        "lost": {name: np.mean(each, 0).tolist() for name, each in lost.items()},
    }  # fmt: skip
