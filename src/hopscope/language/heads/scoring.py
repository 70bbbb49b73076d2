"""Heads of pretrained models: what they attend to, and what is lost without them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, model_validator

from hopscope.claims.intervals import Interval
from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.heads.answers import EXAMPLES, Method
from hopscope.language.heads.attention import Outputs, Scores, measure
from hopscope.language.heads.claim import judged
from hopscope.language.heads.cost import Cost, Share, costs
from hopscope.language.heads.model import Attentive, load
from hopscope.language.heads.passages import FORMULATION as PASSAGE
from hopscope.language.heads.passages import read_passages
from hopscope.language.heads.ranking import ANY_TARGET, compared, lift, ranked, sizes
from hopscope.language.heads.tokens import Reader, Tokenized
from hopscope.tasks.text import Question, TextConfig, questions, space
from hopscope.tasks.text.config import Formulation

SHOWN: Final = 10
"""Heads in `top`."""

FREE_DEPTH = ("equations", "lives_with")
"""Formulations that have every depth."""

Progress = Callable[[str], None]


class HeadsConfig(Config):
    """What is asked of the heads of a model.

    Attributes:
        formulation: of the questions; None for passages.
        depth: D of the questions on which heads are found; where the formulation has other depths, 1 … D are all
            answered without the heads.  None stands for the formulation's own.
        chains: N.
        count: questions on which heads are found, and as many others on which they are taken out, of each depth.
        seed: of the questions and of the random heads.
        chat: whether prompts go through the tokenizer's chat template.
        method: what stands in a head's place.
        rank: target by which heads are ranked, or "any".
        top: how many heads are taken out at once; empty for 1, 2, 4, 8, at most one of eight.
        draws: sets of random heads that the top ones are compared with.
    """

    formulation: Formulation | None = None
    depth: int | None = None
    chains: int = 4
    count: int = Field(default=64, ge=2)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    chat: bool = False
    method: Method = "mean"
    rank: str = ANY_TARGET
    top: tuple[int, ...] = ()
    draws: int = Field(default=8, ge=1)

    @model_validator(mode="after")
    def _questions_exist(self) -> "HeadsConfig":
        if self.formulation is not None:
            self.text()
        return self

    def text(self, depth: int | None = None) -> TextConfig:
        """The questions of a depth; of the configuration's own without one."""
        assert self.formulation is not None, "passages are not drawn"
        try:
            return TextConfig(formulation=self.formulation, depth=depth or self.depth, chains=self.chains)
        except ValidationError as error:
            raise ValueError(validation_line(error)) from None


@dataclass(frozen=True)
class _Asked:
    """Questions on which heads are found, and those of each depth on which they are taken out."""

    formulation: str
    depth: int
    chains: int
    found_on: Sequence[Question]
    answered: Mapping[int, Sequence[Question]]


def score(
    model: str | Path | Attentive,
    formulation: Formulation | None = None,
    *,
    passages: Path | None = None,
    pretrained: bool | None = None,
    device: str = "cpu",
    precision: Literal["float32", "bfloat16"] = "float32",
    progress: Progress = lambda _: None,
    **fields: Any,
) -> dict[str, Any]:
    """Score every head of a model, and take the best ones out.

    Args:
        model: a folder that `save_pretrained` wrote, a name on the hub, or a model that is already loaded.
        formulation: of the questions; one of `hopscope.tasks.text.FORMULATIONS`.
        passages: in place of a formulation, a file of marked text.
        pretrained: whether the model was trained on text of the world (only then can S2 be settled); None: if its name
            is no folder.
        device: of torch.
        precision: of weights and activations.
        progress: is told what is being done.
        fields: others of `HeadsConfig`.

    Returns:
        The JSON object of `hopscope heads --json`, see docs/heads.md.

    Raises:
        UserError: the extra is missing, the model or the passage cannot be used, or a field is out of range.
    """
    try:
        config = HeadsConfig(formulation=formulation, **fields)
    except ValidationError as error:
        raise UserError(f"{validation_line(error)}; see docs/heads.md") from None
    if (formulation is None) == (passages is None):
        raise UserError("questions: expected either a formulation or a passage, found both or none; give one")
    asked = _passages(passages) if passages is not None else _drawn(config)
    progress("loading the model")
    loaded = model if isinstance(model, Attentive) else load(str(model), device, precision)
    if pretrained is None:
        pretrained = not Path(loaded.name).is_dir()
    return _Scored(loaded, config, asked, progress).record(pretrained)


def _drawn(config: HeadsConfig) -> _Asked:
    text = config.text()
    depths = range(1, text.steps + 1) if text.formulation in FREE_DEPTH else [text.steps]
    found_on = list(questions(text, config.count, config.seed))
    answered = {depth: _answered(config, depth, text.steps) for depth in depths}
    return _Asked(text.formulation, text.steps, text.chains, found_on, answered)


def _answered(config: HeadsConfig, depth: int, found_at: int) -> list[Question]:
    """Other questions than those on which heads are found; of a lesser depth, all are."""
    text = config.text(depth)
    if depth == found_at:
        return list(questions(text, config.count, config.seed, start=config.count))
    return list(questions(text, min(config.count, space(text)), config.seed))


def _passages(path: Path) -> _Asked:
    found = read_passages(path)
    return _Asked(PASSAGE, found[0].depth, 1, found, {found[0].depth: found})


class _Scored:
    """A model that is being scored."""

    def __init__(self, model: Attentive, config: HeadsConfig, asked: _Asked, progress: Progress) -> None:
        self._model, self._config, self._asked, self._progress = model, config, asked, progress
        self._reader = Reader(model.tokenizer, config.chat)
        self._sizes = sizes(len(model.layers) * model.heads, config.top)

    def record(self, pretrained: bool) -> dict[str, Any]:
        """Everything that is written."""
        config, asked, model = self._config, self._asked, self._model
        texts = {depth: self._read(found) for depth, found in asked.answered.items()}
        self._progress(f"attention, {len(asked.found_on)} questions")
        kept = EXAMPLES if config.method == "resample" else 0
        scores, outputs = measure(model, self._read(asked.found_on), kept)
        order = ranked(scores, config.rank)
        found = [cost for depth in texts for cost in self._costs(texts[depth], depth, order, outputs)]
        claim, judgement = judged(found, pretrained)
        return {
            "model": model.name,
            "pretrained": pretrained,
            "formulation": asked.formulation,
            "depth": asked.depth,
            "chains": asked.chains,
            "count": len(asked.found_on),
            "seed": config.seed,
            "chat": config.chat,
            "layers": len(model.layers),
            "heads": model.heads,
            "targets": {name: _target(one) for name, one in scores.items()},
            "rank": config.rank,
            "top": _top(scores, order, config.rank),
            "method": config.method,
            "ablation": [_written(cost) for cost in found],
            "claims": [claim.to_json()],
            "words": {claim.id: judgement.words},
        }

    def _read(self, asked: Sequence[Question]) -> list[Tokenized]:
        return [self._reader.read(question) for question in asked]

    def _costs(
        self, texts: Sequence[Tokenized], depth: int, order: Sequence[tuple[int, int]], outputs: Outputs
    ) -> list[Cost]:
        config = self._config
        self._progress(f"without heads, depth {depth}")
        return costs(
            self._model, texts, depth, order, self._sizes, outputs,
            method=config.method, draws=config.draws, seed=config.seed,
        )  # fmt: skip


def _target(scores: Scores) -> dict[str, Any]:
    low, high = scores.low.tolist(), scores.high.tolist()
    interval = [list(map(list, zip(*ends, strict=True))) for ends in zip(low, high, strict=True)]
    return {
        "scores": scores.mean.tolist(),
        "floor": scores.floor,
        "interval": None if math.isnan(low[0][0]) else interval,
        "questions": scores.questions,
    }


def _top(scores: dict[str, Scores], order: Sequence[tuple[int, int]], rank: str) -> list[dict[str, Any]]:
    lifts = {name: lift(scores[name]) for name in compared(scores, rank)}
    found = []
    for layer, head in order[:SHOWN]:
        best = max(lifts, key=lambda name: lifts[name][layer, head])
        value, floor = float(scores[best].mean[layer, head]), scores[best].floor
        found.append({"layer": layer, "head": head, "target": best, "score": value, "floor": floor})
    return found


def _written(cost: Cost) -> dict[str, Any]:
    clean, top, random = cost.margins
    return {
        "depth": cost.depth,
        "k": cost.k,
        "heads": [list(head) for head in cost.heads],
        "questions": cost.questions,
        "guess": cost.guess,
        "accuracy": cost.clean.value,
        "interval": _ends(cost.clean.interval),
        "top": _accuracy(cost.top),
        "random": _accuracy(cost.random) | {"draws": cost.draws},
        "cost": {
            "top": 100 * cost.top_cost.value,
            "top_interval": _points(cost.top_cost),
            "random": 100 * cost.random_cost.value,
            "random_interval": _points(cost.random_cost),
        },
        "margin": {"clean": clean, "top": top, "random": random},
    }


def _accuracy(share: Share) -> dict[str, Any]:
    return {"accuracy": share.value, "interval": _ends(share.interval)}


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _points(share: Share) -> list[float] | None:
    return None if share.interval is None else [100 * end for end in share.interval]
