"""Claim S2: the heads that retrieval needs stand in pretrained models too."""

from collections.abc import Sequence

from hopscope.claims import Criterion, JudgedClaim, Judgement, Verdict, combine_parts, judge_interval, not_run
from hopscope.claims.judged import Found
from hopscope.language.heads.cost import Cost, Estimate

PARTS = {
    "cost of the top heads": Criterion(at_least=0.30, unit="fraction"),
    "cost of random heads": Criterion(at_most=0.10, unit="fraction"),
}

LEAST_QUESTIONS = 64
"""Questions behind a verdict."""


def judged(costs: Sequence[Cost], pretrained: bool) -> tuple[JudgedClaim, Judgement]:
    """Claim S2 and its judgement.

    It is judged at the largest number of heads that was taken out, and at the deepest questions that the model answers
    well enough for 30 points to be lost: the lower end of its accuracy lies 30 points above guessing.  Neither depends
    on what the ablation did.

    Args:
        costs: of all depths and sizes.
        pretrained: whether the model was trained on text of the world, not on the questions themselves.
    """
    judgement = judge(costs, pretrained)
    here = judge(costs, pretrained, here=True)
    ran = judgement.verdict is not Verdict.NOT_RUN
    claim = JudgedClaim.judged(
        judgement,
        id="S2",
        statement="The heads that retrieval needs also stand in pretrained language models.",
        source="summary of the paper, next check 2",
        protocol="accuracy among the acceptable answers without the heads that pay the most attention to structural "
        "targets, against as many other heads of the same layers, on other questions than those they were found on",
        threshold=PARTS,
        trust="that the attention targets are marked right, and that a mean output in a head's place removes what it "
        "says about this question and nothing else",
        n_counts="question",
        rule="mean",
        need="all",
        here=Found.of(here) if ran else None,
        leaning=_LEANINGS[here.verdict] if judgement.verdict is Verdict.INCONCLUSIVE else None,
    )
    return claim, judgement


_LEANINGS = {Verdict.REPRODUCED: "agrees", Verdict.REFUTED: "disagrees", Verdict.INCONCLUSIVE: "mixed"}


def judge(costs: Sequence[Cost], pretrained: bool, *, here: bool = False) -> Judgement:
    """What the costs say about S2; at the scale of what was asked, whatever it lacks, if `here`."""
    k = max(cost.k for cost in costs)
    of_size = sorted((cost for cost in costs if cost.k == k), key=lambda cost: cost.depth)
    able = [cost for cost in of_size if _low(cost.clean) > cost.guess]
    if all(cost.clean.interval is None for cost in of_size):
        return not_run(
            "a single question says nothing about what the model can do; mark more passages of one depth"
        )
    if not able:
        told = ", ".join(
            f"{cost.clean.value:.2f} at depth {cost.depth} (guess {cost.guess:.2f})" for cost in of_size
        )
        return not_run(f"the model does not answer these questions: accuracy {told}")
    room = [
        cost for cost in able if _low(cost.clean) >= cost.guess + PARTS["cost of the top heads"].bounds[0]
    ]
    cost = (room or able)[-1]
    lack = "" if here else _missing(cost, bool(room), pretrained)
    parts = {}
    for (name, criterion), (value, interval) in zip(
        PARTS.items(), (cost.top_cost, cost.random_cost), strict=True
    ):
        parts[name] = judge_interval(
            value, interval or (value, value), criterion, n=cost.questions, lacks=lack or None
        )
    found = combine_parts(parts)
    where = f"depth {cost.depth}, {cost.k} heads, accuracy {cost.clean.value:.2f} with all: "
    return found.model_copy(update={"words": where + found.words})


def _low(estimate: Estimate) -> float:
    """One question says nothing about what the model can do."""
    return estimate.interval[0] if estimate.interval else 0.0


def _missing(cost: Cost, room: bool, pretrained: bool) -> str:
    lacks = {
        "the model is not said to be pretrained": pretrained,
        "its accuracy leaves no 30 points to lose": room,
        f"{cost.questions} of {LEAST_QUESTIONS} questions": cost.questions >= LEAST_QUESTIONS,
    }
    return ", ".join(words for words, there in lacks.items() if not there)
