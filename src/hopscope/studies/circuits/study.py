"""The study of circuits as a value."""

from hopscope.studies.chains.config import plan
from hopscope.studies.chains.figures import figures
from hopscope.studies.chains.page import names
from hopscope.studies.chains.study import circuits_of_members, member_name, proofs_of_members
from hopscope.studies.circuits.claims import claims
from hopscope.studies.circuits.config import COSTS, PRESETS, CircuitsConfig
from hopscope.studies.circuits.paper_claims import paper_claims
from hopscope.studies.retrieval_rows import losses_at_the_end
from hopscope.studies.study import Study

study = Study(
    name="circuits",
    question="models of many layers follow a chain: which heads do it, how, and whether seeds agree",
    options=CircuitsConfig(),
    units=plan,
    analyses=(
        losses_at_the_end,
        circuits_of_members,
        proofs_of_members(read_again=True),
    ),
    # Smaller models are judged by the rules that their committed runs are registered with.
    claims=lambda options: claims(options) if options.departures else paper_claims(),
    figures=lambda options: figures(options, "reads", "controls", "modes", "timeline", "gallery"),
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
    member_name=member_name,
)
