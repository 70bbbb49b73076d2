"""The depth study as a value."""

from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.config import COSTS, PRESETS, DepthStudyConfig
from hopscope.studies.depth.figures import figures
from hopscope.studies.depth.page import names
from hopscope.studies.retrieval import losses_at_the_end
from hopscope.studies.study import Study

study = Study(
    name="depth",
    question="models of many depths follow a chain: which steps they learn, in which order, and how deep it takes",
    options=DepthStudyConfig(),
    units=DepthStudyConfig.jobs,
    analyses=(losses_at_the_end,),
    claims=claims,
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
