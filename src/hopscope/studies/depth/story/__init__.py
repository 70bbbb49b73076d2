"""The page of the depth study in words; every number with the file and the key it came from."""

from hopscope.claims import Claim, Judgement
from hopscope.runs import RunFolder
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.evidence import Evidences
from hopscope.studies.depth.figures import figure_names
from hopscope.studies.depth.story.depths import accuracy_section, depth_section, theory_section
from hopscope.studies.depth.story.numbers import Numbers
from hopscope.studies.depth.story.opening import task_section, verdict_section
from hopscope.studies.depth.story.order import order_section
from hopscope.studies.depth.story.sweeps import specification_section, steps_section
from hopscope.studies.ledger import told

SCHEMA_VERSION = 1


def write_story(
    run: RunFolder, config: DepthStudyConfig, evidence: Evidences, judged: list[tuple[Claim, Judgement]]
) -> None:
    """Write `story.json`."""
    numbers = Numbers()
    sections = [
        task_section(config, numbers),
        verdict_section(config),
        depth_section(config, evidence, numbers),
        order_section(config, evidence, numbers),
        accuracy_section(config, evidence, numbers),
        theory_section(config, evidence, numbers),
        steps_section(config, evidence, numbers),
        specification_section(config, evidence, numbers),
    ]
    models = sum(len(found.seeds) for found in evidence.values())
    story = {
        "schema_version": SCHEMA_VERSION,
        "title": "Following a chain: how many layers does each step take?",
        "subtitle": f"{len(evidence)} configurations, {models} models, measured on held-out samples",
        "numbers": numbers.entries,
        "claims": told(judged),
        "sections": [_with_figures(each, figure_names(config)) for each in sections if each is not None],
    }
    run.write_json("story.json", story)


def _with_figures(section: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """A section without the figures that this run has nothing for."""
    blocks = section["blocks"]
    assert isinstance(blocks, list)
    kept = [block for block in blocks if block["kind"] != "figure" or block["name"] in names]
    return {**section, "blocks": kept}
