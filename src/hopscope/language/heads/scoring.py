"""Heads of pretrained models: what they attend to, and what is lost without them."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, model_validator

from hopscope import __version__
from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.heads.answers import EXAMPLES, Kept, Method
from hopscope.language.heads.attention import Scores, measure
from hopscope.language.heads.claim import judged
from hopscope.language.heads.cost import Cost, costs
from hopscope.language.heads.model import Attentive, load
from hopscope.language.heads.passages import read_passages
from hopscope.language.heads.ranking import ANY_TARGET, compared, lift, ranked, sizes
from hopscope.language.heads.tokens import Reader
from hopscope.language.questions.sets import FREE_DEPTH
from hopscope.runs.hashing import content_hash
from hopscope.tasks.text import Question, TextConfig, questions, space
from hopscope.tasks.text.config import Formulation

SHOWN: Final = 10
"""Heads in `top`."""

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


def score(
    model: str | Path | Attentive,
    formulation: Formulation | None = None,
    *,
    passages: Path | None = None,
    pretrained: bool | None = None,
    device: str = "cpu",
    precision: Literal["float32", "bfloat16"] = "float32",
    progress: Progress = lambda _: None,
    keep: Path | None = None,
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
        keep: folder for what passes found, so that the same call goes on where it was killed; emptied at the end.
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
    if passages is None:
        found_on, asked = _drawn(config)
    else:  # the same for both: there are no others
        found_on = read_passages(passages)
        asked = {found_on[0].depth: found_on}
    kept = Kept(keep and keep / f"{_identity(model, precision, config, found_on)}.jsonl")
    progress("loading the model")
    loaded = model if isinstance(model, Attentive) else load(str(model), device, precision)
    if pretrained is None:
        pretrained = not Path(loaded.name).is_dir()
    reader = Reader(loaded.tokenizer, config.chat)
    out = sizes(len(loaded.layers) * loaded.heads, config.top)
    texts = {depth: [reader.read(one) for one in found] for depth, found in asked.items()}
    progress(f"attention, {len(found_on)} questions")
    examples = EXAMPLES if config.method == "resample" else 0
    scores, outputs = measure(loaded, [reader.read(one) for one in found_on], examples)
    order = ranked(scores, config.rank)
    lost: list[Cost] = []
    for depth, of_depth in texts.items():
        lost += costs(
            loaded, of_depth, depth, order, out, outputs,
            method=config.method, draws=config.draws, seed=config.seed,
            kept=kept, progress=_timed(progress, f"without heads, depth {depth} of {max(texts)}"),
        )  # fmt: skip
    claim, judgement = judged(lost, pretrained)
    kept.done()
    return {
        "model": loaded.name,
        "pretrained": pretrained,
        "formulation": found_on[0].formulation,
        "depth": found_on[0].depth,
        "chains": found_on[0].chains,
        "count": len(found_on),
        "seed": config.seed,
        "chat": config.chat,
        "layers": len(loaded.layers),
        "heads": loaded.heads,
        "targets": {name: _target(one) for name, one in scores.items()},
        "rank": config.rank,
        "top": _top(scores, order, config.rank),
        "method": config.method,
        "ablation": [cost.record() for cost in lost],
        "claims": [claim.to_json()],
        "words": {claim.id: judgement.words},
    }


def _identity(model: object, precision: str, config: HeadsConfig, questions: Sequence[Question]) -> str:
    """Names what passes are kept for: a model as it stands, and what is asked of it."""
    name = model.name if isinstance(model, Attentive) else str(model)
    files = sorted(Path(name).glob("*")) if Path(name).is_dir() else []
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    texts = [question.prompt for question in questions]
    return content_hash([__version__, name, stats, precision, config.model_dump(mode="json"), texts])


def _timed(progress: Progress, what: str) -> Callable[[int, int], None]:
    """Tells how many passes are done, and how long the others will take."""
    began = time.monotonic()

    def tell(done: int, of: int) -> None:
        left = (time.monotonic() - began) / done * (of - done)
        progress(f"{what}: {done} of {of} passes, about {max(1, round(left / 60))} min left")

    return tell


def _drawn(config: HeadsConfig) -> tuple[list[Question], dict[int, list[Question]]]:
    """Questions on which heads are found, and, by depth, those that are answered without them.

    Of the depth on which heads are found, these are others; of a lesser one, all are answered.
    """
    text = config.text()
    asked = {text.steps: list(questions(text, config.count, config.seed, start=config.count))}
    if text.formulation in FREE_DEPTH:
        for depth in range(1, text.steps):
            lesser = config.text(depth)
            asked[depth] = list(questions(lesser, min(config.count, space(lesser)), config.seed))
    return list(questions(text, config.count, config.seed)), dict(sorted(asked.items()))


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
