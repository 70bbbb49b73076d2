"""What a language model answered to questions of one kind, counted, as rows of the evidence table.

All rows of a tally have the same part, the kind of question; below it is called `kind`.

    `accuracy`: share of right answers among those that were acceptable in the end (the paper's measure).
    `first_accuracy`: share of all questions that were answered rightly at once.
    `acceptance`, `answered`: share of all questions with an acceptable answer at once, and in the end.
        Each of the four has its 95 % Wilson interval: `accuracy_low`, `accuracy_high`, and so on.
    `guess`: what a blind guess among the acceptable answers reaches.  `attempts`: mean number of answers asked for.
    `questions`: how many were asked.  `stuck`: how many got the same unacceptable answer over and over.
    `wrong`: acceptable answers that are not right.  `lost_chain`: those of them that are another chain's answer.
    `lost_steps`: wrong answers by the steps at which the reading may have gone wrong; part `kind: 1,2`.
    `rejected`: unacceptable answers by what they are; part `kind: stopped at hop 1`.
    `from_first_line`, `from_answer_line`: wrong answers of another chain, by how many chains further down its line
        stands than the asked one's (that which is read first, and that which gives the answer); part `kind: -1`.
    `said`: questions by which of their symbols was said first, right or wrong; part `kind: asked chain, hop 2`.
"""

from collections.abc import Callable, Iterator

from hopscope.language.questions.answers import Share, Tally
from hopscope.runs.evidence import Row

SHARES = ("accuracy", "first_accuracy", "acceptance", "answered")
NUMBERS = ("guess", "attempts", "questions", "stuck", "wrong", "lost_chain")
COUNTS = ("lost_steps", "rejected", "from_first_line", "from_answer_line", "said")


def tally_rows(row: Callable[..., Row], tally: Tally, part: str) -> Iterator[Row]:
    """The rows of one tally.

    Args:
        row: makes a row of a metric, a value and a part.
        tally: the counts.
        part: what this kind of question is called.
    """
    for name in SHARES:
        share: Share = getattr(tally, name)
        ends = {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
        for metric, value in ends.items():
            yield row(metric=metric, value=value, part=part)
    for name in NUMBERS:
        yield row(metric=name, value=float(getattr(tally, name)), part=part)
    for name in COUNTS:
        for thing, count in getattr(tally, name).items():
            yield row(metric=name, value=float(count), part=f"{part}: {thing}")
