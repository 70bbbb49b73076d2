"""The study of circuits as a value."""

from hopscope.studies.circuit_study.config import jobs
from hopscope.studies.circuit_study.figures import charts, timeline
from hopscope.studies.circuit_study.members import circuits_of_members
from hopscope.studies.circuit_study.page import names
from hopscope.studies.circuit_study.proof import proofs_of_members
from hopscope.studies.circuit_study.transfers import circuits_in_other_members
from hopscope.studies.circuits.claims import claims
from hopscope.studies.circuits.config import COSTS, PRESETS, CircuitsConfig
from hopscope.studies.circuits.own_claims import doubles
from hopscope.studies.retrieval import losses_at_the_end
from hopscope.studies.study import Study

study = Study(
    name="circuits",
    question="models of many layers follow a chain: which heads do it, how, and whether seeds agree",
    options=CircuitsConfig(),
    units=jobs,
    analyses=(losses_at_the_end, circuits_of_members, proofs_of_members, circuits_in_other_members),
    claims=claims(),
    figures=lambda options: (
        *charts(options, "reads", "controls", "modes", "bounds", "transfers"),
        timeline(options),
        *charts(options, "gallery"),
    ),
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=lambda page, options: {**names(page, options), "doubles": doubles(page.evidence)},
    member_name=lambda options, member: options.names[member],
)
