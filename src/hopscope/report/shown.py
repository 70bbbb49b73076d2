"""One member on one sequence, as a value that shows itself: text in a terminal, HTML in a notebook."""

from typing import Literal

from hopscope.report.environment import asset, environment
from hopscope.report.prose import Prose
from hopscope.report.record import WorkedSequence
from hopscope.report.worked import as_text


class ShownSequence(WorkedSequence):
    """A member's answers to one sequence of the permutation lookup task.

    Attributes:
        run: hash of the run.
        member: number of the member in the run.
        checkpoint: training step of its weights.
        mapping: the values of 1 … V; None where the sequence leaves several.
        split: whether training uses the mapping (`"train"`) or not (`"held_out"`); None where there is no one mapping.
        sequence: the tokens x₁ y₁ x₂ y₂ ….
        steps: for each x what was seen and used, target, probabilities, what recall and elimination answer, and the
            ideal observer's probabilities.
        title, caption: the same in words.
    """

    run: str
    member: int
    checkpoint: int
    mapping: tuple[int, ...] | None
    split: Literal["train", "held_out"] | None

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        # No file to point at: these numbers were computed for this call.
        template = environment().get_template("worked.html")
        block = {
            **{name: getattr(self, name) for name in ("title", "steps", "caption")},
            "file": "",
            "key": "",
        }
        return template.render(prose=Prose({}), block=block, style=asset("worked.css"))
