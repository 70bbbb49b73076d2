"""Why a member did not learn a chain: the failures that the summary of the paper lists, told from losses and depth.

The summary (`Architecture Onboarding`, *failure signatures*) names three: a loss that stays on the plateau where there
are too few layers; induction heads alone where depth is missing; and long chains that fail where the implicit
curriculum is missing.  A signature is what the losses show; its cause is what is known of the member beside them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from hopscope.studies.chains.evidence import LEARNED
from hopscope.studies.chains.recipe import exact_layers_of

if TYPE_CHECKING:
    from hopscope.models.config import Model
    from hopscope.tasks import Retrieval

Signature = Literal["learned", "early plateau", "only induction heads", "long chains fail", "diverged"]
Cause = Literal["", "too few layers", "no curriculum", "still falling", "not found", "not a number"]

FALLING = 0.05
"""A loss that falls by this much over the last quarter of training has not come to rest."""


def diagnosed(
    task: "Retrieval", model: "Model", losses: Mapping[int, Sequence[float]]
) -> tuple[Signature, Cause]:
    """The signature of a member, and the likely cause; none for one that learned all that it was asked for.

    Args:
        task, model: of the member.
        losses: step that was asked for → held-out losses through training; empty for a member that diverged.
    """
    if not all(losses.values()):
        return "diverged", "not a number"
    learned = [step for step, values in losses.items() if values[-1] < LEARNED]
    left = [step for step in losses if step not in learned]
    if not left:
        return "learned", ""
    first, needed = left[0], exact_layers_of(task.steps, model.causal, task.order)
    enough = model.layers >= needed[first]
    if learned == [1]:
        signature: Signature = "only induction heads"
    else:
        signature = "long chains fail" if learned or (min(losses) > 1 and enough) else "early plateau"
    if not enough:
        return signature, "too few layers"
    if any(step not in losses for step in range(1, first)):
        return signature, "no curriculum"
    quarter = losses[first][-max(2, len(losses[first]) // 4) :]
    return signature, "still falling" if quarter[0] - quarter[-1] > FALLING else "not found"
