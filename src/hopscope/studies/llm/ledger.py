"""Claim R10 of the paper, and how it is judged."""

from collections.abc import Sequence

from hopscope.claims import Claim, Criterion, Judgement, Verdict, combine_parts, judge_interval, not_run
from hopscope.claims.intervals import wilson
from hopscope.studies.ledger import Statement
from hopscope.studies.llm.cells import Cell
from hopscope.studies.llm.config import PAPER_COUNT, PAPER_DEPTHS, LanguageModelConfig
from hopscope.studies.llm.words import kind_words, kinds_words, short_names
from hopscope.studies.words import counted

THRESHOLD = Criterion(at_least=0.9, unit="fraction")

R10 = Statement(
    "R10",
    "Large language models solve all five formulations, almost perfectly for D up to 5.",
    "paper §4",
    "accuracy given acceptable, for each model, formulation and depth of equations, on "
    f"{PAPER_COUNT} questions each",
    "95 % Wilson interval of every model and kind of question ≥ 90 %; refuted by one that lies wholly below",
    "the server that answers under a model's name, and that the answer is matched as the page says",
)

NO_MODEL = "not run: no model was given; name one with --model PROVIDER/MODEL"


def judge(cells: Sequence[Cell], config: LanguageModelConfig) -> list[tuple[Claim, Judgement]]:
    """The ledger of the study."""
    judgement = r10(cells, config)
    return [(R10.judged(judgement), judgement)]


def r10(cells: Sequence[Cell], config: LanguageModelConfig) -> Judgement:
    """Every model solves every kind of question that the claim is about."""
    about = [cell for cell in cells if cell.formulation != "equations" or cell.depth in PAPER_DEPTHS]
    if not about:
        return not_run("not run: nothing that the claim is about was asked" if config.model else NO_MODEL)
    names = short_names(list(dict.fromkeys(cell.model for cell in about)))
    parts = {_part(cell, names): _judged(cell, config.departures()) for cell in about}
    judgement = combine_parts(parts)
    return judgement.model_copy(update={"words": _words(about, parts, config, judgement)})


def _part(cell: Cell, names: dict[str, str]) -> str:
    """What a number of the ledger is called; the model is named where there are several."""
    return kind_words(cell) if len(names) == 1 else f"{names[cell.model]}, {kind_words(cell)}"


def _judged(cell: Cell, departures: Sequence[str]) -> Judgement:
    share = cell.accuracy
    if share.value is None or share.low is None or share.high is None:
        # Asked, but never answered in a form that counts: this is neither a success nor a failure of retrieval.
        return Judgement(
            verdict=Verdict.INCONCLUSIVE, n=cell.questions, words="no acceptable answer to any question"
        )
    missing = [*departures, *_open(cell)]
    return judge_interval(
        share.value,
        (share.low, share.high),
        THRESHOLD,
        n=cell.questions,
        at_scale=not missing,
        missing=", ".join(missing),
    )


def _open(cell: Cell) -> list[str]:
    """Questions without an acceptable answer, if the verdict could hang on them.

    The paper samples until an answer is acceptable; under a cap some questions have none.  They are left out of the
    accuracy, so a verdict must not change when all of them are counted as wrong, or as right.
    """
    right, unanswered = cell.accuracy.count, cell.questions - cell.accuracy.of
    assert cell.accuracy.low is not None and cell.accuracy.high is not None
    given = (cell.accuracy.low, cell.accuracy.high)
    widest = (wilson(right, cell.questions)[0], wilson(right + unanswered, cell.questions)[1])
    same = (THRESHOLD.met_by(given), THRESHOLD.failed_by(given)) == (
        THRESHOLD.met_by(widest),
        THRESHOLD.failed_by(widest),
    )
    return [] if same else [f"{counted(unanswered, 'question')} without an acceptable answer"]


def _words(
    cells: Sequence[Cell], parts: dict[str, Judgement], config: LanguageModelConfig, judgement: Judgement
) -> str:
    """What was seen, model by model; then what stands between that and a verdict."""
    said = []
    for model in dict.fromkeys(cell.model for cell in cells):
        of = [cell for cell in cells if cell.model == model]
        above = sum(cell.accuracy.low is not None and THRESHOLD.holds(cell.accuracy.low) for cell in of)
        below = [
            cell for cell in of if cell.accuracy.high is not None and not THRESHOLD.holds(cell.accuracy.high)
        ]
        none = sum(cell.accuracy.value is None for cell in of)
        words = f"{model}: {above} of {counted(len(of), 'kind')} of questions wholly above 90 %"
        words += f", {len(below)} wholly below ({kinds_words(below)})" if below else ""
        words += f", {none} without any acceptable answer" if none else ""
        said.append(words)
    missing = config.departures()
    if missing:
        said.append(f"below the protocol's scale: {', '.join(missing)}")
    elif judgement.verdict is Verdict.INCONCLUSIVE:
        hanging = [
            f"{name} ({part.words})" for name, part in parts.items() if part.verdict is Verdict.INCONCLUSIVE
        ]
        said.append(f"undecided: {', '.join(hanging)}")
    return " · ".join(said)
