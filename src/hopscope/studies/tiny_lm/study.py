"""The study of a small language model as a value; what needs torch, Inspect or charts is imported when it is called."""

from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.circuit_study.members import files as circuit_files
from hopscope.studies.study import Study
from hopscope.studies.tiny_lm.claims import claims
from hopscope.studies.tiny_lm.config import COSTS, EXAM, PRESETS, TinyLmConfig, jobs
from hopscope.studies.tiny_lm.figures import figures
from hopscope.studies.tiny_lm.members import measurements
from hopscope.studies.tiny_lm.page import names

_ANALYSIS = "hopscope.studies.tiny_lm.analysis"

study = Study(
    name="tiny-lm",
    question="a small language model learns questions in equations and is asked them as any language model is",
    options=TinyLmConfig(),
    units=jobs,
    analyses=(
        UnitAnalysis(
            files=lambda options, job: {EXAM: "json", **circuit_files(options, job)},
            work=deferred(f"{_ANALYSIS}:analyse"),
            rows=measurements,
            evaluate=deferred(f"{_ANALYSIS}:evaluator"),
        ),
    ),
    claims=claims,
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
