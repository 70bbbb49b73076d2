"""The permutation study as a value; what needs torch or charts is imported when it is called."""

from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.permutation.circuits import circuits
from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.config import COSTS, PRESETS, PermutationStudyConfig, analyses
from hopscope.studies.permutation.figures import figures
from hopscope.studies.permutation.measures import measurements
from hopscope.studies.permutation.page import names
from hopscope.studies.study import Study

_ANALYSIS = "hopscope.studies.permutation.analysis"

study = Study(
    name="permutation",
    question="one-layer models look up a permutation: elimination, recall, and which model learns which",
    options=PermutationStudyConfig(),
    units=PermutationStudyConfig.jobs,
    analyses=(
        UnitAnalysis(
            analyses, deferred(f"{_ANALYSIS}:analyse"), measurements, deferred(f"{_ANALYSIS}:evaluator")
        ),
        circuits,
    ),
    claims=claims,
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
