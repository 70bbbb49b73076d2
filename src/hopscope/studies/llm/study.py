"""The study of language models as a value: nothing is trained, so there are no units and no members."""

from hopscope.language.questions.answers import FILE
from hopscope.studies.analysis import RunAnalysis, deferred
from hopscope.studies.llm.claims import claims
from hopscope.studies.llm.config import COSTS, PRESETS, LanguageModelConfig
from hopscope.studies.llm.figures import figures
from hopscope.studies.llm.measurements import measurements
from hopscope.studies.llm.page import names
from hopscope.studies.study import Study

_ASKING = "hopscope.studies.llm.asking"

study = Study(
    name="llm",
    question="language models answer retrieval problems in words: how often, and how they fail",
    options=LanguageModelConfig(),
    units=lambda options: [],
    analyses=(
        RunAnalysis((FILE,), deferred(f"{_ASKING}:gather"), measurements, check=deferred(f"{_ASKING}:check")),
    ),
    claims=claims,
    figures=figures,
    presets=PRESETS,
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
