"""The study of emergence as a value."""

from typing import TYPE_CHECKING

from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.chains.config import plan
from hopscope.studies.chains.page import names as chain_names
from hopscope.studies.chains.study import circuits_of_members, member_name, proofs_of_members
from hopscope.studies.emergence.claims import claims
from hopscope.studies.emergence.config import COSTS, PRESETS, EmergenceConfig, candidates, clamps_name
from hopscope.studies.emergence.figures import figures
from hopscope.studies.emergence.measures import measurements
from hopscope.studies.emergence.page import names
from hopscope.studies.emergence.paper_claims import paper_claims
from hopscope.studies.retrieval_rows import losses_at_the_end
from hopscope.studies.study import Study

if TYPE_CHECKING:
    from hopscope.training.config import UnitPlan


def files(options: EmergenceConfig, plan: "UnitPlan") -> dict[str, str]:
    """The members that are trained again."""
    return {clamps_name(member.member): "json" for _, member in candidates(options, plan)}


study = Study(
    name="emergence",
    question="the heads of a circuit as they form: in which order, with which losses, and what needs what",
    options=EmergenceConfig(),
    units=plan,
    analyses=(
        losses_at_the_end,
        circuits_of_members,
        proofs_of_members(read_again=False),
        UnitAnalysis(files, deferred("hopscope.studies.emergence.clamps:analyse"), measurements),
    ),
    # Smaller models are judged by the rules that their committed runs are registered with.
    claims=lambda options: claims(options) if options.departures else paper_claims(),
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=lambda page, options: {**chain_names(page, options), **names(page, options)},
    member_name=member_name,
)
