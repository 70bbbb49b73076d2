"""The study of circuits as a value."""

from hopscope.studies.chains.config import plan
from hopscope.studies.chains.figures import figures
from hopscope.studies.chains.page import names
from hopscope.studies.chains.study import circuits_of_members, member_name
from hopscope.studies.circuits.claims import claims
from hopscope.studies.circuits.config import COSTS, PRESETS, CircuitsConfig
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
    ),
    claims=claims,
    figures=lambda options: figures(options, "reads", "controls", "modes", "timeline", "gallery"),
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
    member_name=member_name,
)
