"""Heads of pretrained models: what they attend to, and what is lost without them."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from hopscope import __version__
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.language.heads.answers import EXAMPLES, Kept
from hopscope.language.heads.attention import Scores, measure
from hopscope.language.heads.claim import judged
from hopscope.language.heads.config import BEST, HeadsConfig
from hopscope.language.heads.cost import Cost, costs
from hopscope.language.heads.model import Attentive, load
from hopscope.language.heads.passages import read_passages
from hopscope.language.heads.ranking import compared, lift, ranked, sizes
from hopscope.language.heads.settings import Tried, best, tried
from hopscope.language.heads.tokens import Reader, Tokenized
from hopscope.language.questions.sets import FREE_DEPTH
from hopscope.runs.hashing import content_hash
from hopscope.tasks.text import Question, questions, space
from hopscope.tasks.text.config import Formulation

SHOWN: Final = 10
"""Heads in `top`."""

Progress = Callable[[str], None]


def score(
    model: str | Path | Attentive,
    formulation: Formulation | Literal["best"] | None = None,
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
        formulation: of the questions; one of `hopscope.tasks.text.FORMULATIONS`, or `best`
            (`hopscope.language.heads.settings`).
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
    marked = None if passages is None else read_passages(passages)
    several: list[Kept] = []

    def kept(config: HeadsConfig, asked: Sequence[Question]) -> Kept:
        several.append(Kept(keep and keep / f"{_identity(model, precision, config, asked)}.jsonl"))
        return several[-1]

    progress("loading the model")
    loaded = model if isinstance(model, Attentive) else load(str(model), device, precision)
    if pretrained is None:
        pretrained = not Path(loaded.name).is_dir()
    ways: list[Tried] = []
    if config.formulation == BEST:
        ways = tried(loaded, config, kept, progress)
        config = best(ways).config.model_copy(update={"seed": config.seed, "count": config.count})
    # Of passages the same for both: there are no others.
    found_on, asked = _drawn(config) if marked is None else (marked, {marked[0].depth: marked})
    reader = Reader(loaded.tokenizer, config.chat)
    out = sizes(len(loaded.layers) * loaded.heads, config.top)
    texts = {depth: _told(reader, config, found) for depth, found in asked.items()}
    told = _told(reader, config, found_on)
    progress(f"attention, {len(found_on)} questions")
    examples = EXAMPLES if config.method == "resample" else 0
    scores, outputs = measure(loaded, told, examples)
    order = ranked(scores, config.rank)
    lost: list[Cost] = []
    passes = kept(config, found_on)
    for depth, of_depth in texts.items():
        lost += costs(
            loaded, of_depth, depth, order, out, outputs,
            method=config.method, draws=config.draws, seed=config.seed,
            kept=passes, progress=_timed(progress, f"without heads, depth {depth} of {max(texts)}"),
        )  # fmt: skip
    claim, judgement = judged(lost, pretrained)
    for one in several:
        one.done()
    return {
        "model": loaded.name,
        "pretrained": pretrained,
        "formulation": found_on[0].formulation,
        "depth": found_on[0].depth,
        "chains": found_on[0].chains,
        "count": len(found_on),
        "seed": config.seed,
        "chat": config.chat,
        **{name: getattr(config, name) for name in ("few_shot", "filler", "repeats", "complete")},
        "precision": precision,
        "settings": [way.record() for way in ways] or None,
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


def _told(reader: Reader, config: HeadsConfig, asked: Sequence[Question]) -> list[Tokenized]:
    """Questions of one depth in the model's tokens, put as the configuration says; passages as they stand."""
    if config.formulation is None:
        return [reader.read(one) for one in asked]
    place = config.placed(asked[0].depth)
    return [reader.read(one, place(one)) for one in asked]


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
