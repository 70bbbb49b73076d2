"""The study of emergence as a value."""

from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.circuit_study.config import jobs
from hopscope.studies.circuit_study.members import circuits_of_members
from hopscope.studies.circuit_study.page import names as shared_names
from hopscope.studies.circuit_study.proof import proofs_of_members
from hopscope.studies.emergence.claims import claims
from hopscope.studies.emergence.config import COSTS, PRESETS, EmergenceConfig, candidates, clamps_name
from hopscope.studies.emergence.figures import figures
from hopscope.studies.emergence.measures import measurements
from hopscope.studies.emergence.page import names
from hopscope.studies.retrieval import losses_at_the_end
from hopscope.studies.study import Study

trained_again = UnitAnalysis(
    files=lambda options, job: {clamps_name(each.member): "json" for _, each in candidates(options, job)},
    work=deferred("hopscope.studies.emergence.clamps:analyse"),
    rows=measurements,
)
"""Members that were trained again with some of their reads clamped."""

study = Study(
    name="emergence",
    question="the heads of a circuit as they form: in which order, with which losses, and what needs what",
    options=EmergenceConfig(),
    units=jobs,
    analyses=(losses_at_the_end, circuits_of_members, proofs_of_members, trained_again),
    claims=claims(),
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=lambda page, options: {**shared_names(page, options), **names(page, options)},
    member_name=lambda options, member: options.names[member],
)
