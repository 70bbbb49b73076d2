"""The study of a small language model as a value; what needs torch, Inspect or charts is imported when it is called."""

from typing import TYPE_CHECKING

from hopscope.circuits.config import followed_names
from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.study import Study
from hopscope.studies.tiny_lm.claims import claims
from hopscope.studies.tiny_lm.config import COSTS, EXAM, PRESETS, TinyLmConfig, plan
from hopscope.studies.tiny_lm.figures import figures
from hopscope.studies.tiny_lm.measures import measurements
from hopscope.studies.tiny_lm.page import names

if TYPE_CHECKING:
    from hopscope.training.config import UnitPlan


def files(options: TinyLmConfig, plan: "UnitPlan") -> dict[str, str]:
    """Answers through Inspect, circuits, and how their paths formed."""
    members = [member.member for member in plan.members]
    return {EXAM: "json", **followed_names(members, options.reader())}


_ANALYSIS = "hopscope.studies.tiny_lm.analysis"

study = Study(
    name="tiny-lm",
    question="a small language model learns questions in equations and is asked them as any language model is",
    options=TinyLmConfig(),
    units=plan,
    analyses=(
        UnitAnalysis(
            files, deferred(f"{_ANALYSIS}:analyse"), measurements, deferred(f"{_ANALYSIS}:evaluator")
        ),
    ),
    claims=claims,
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
