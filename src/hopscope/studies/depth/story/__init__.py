"""The page of the depth study in words; every number with the file and the key it came from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hopscope.claims import JudgedClaim
from hopscope.runs import RunFolder
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures import figure_names
from hopscope.studies.depth.results import AllResults
from hopscope.studies.depth.story.depths import accuracy_section, depth_section, theory_section
from hopscope.studies.depth.story.numbers import Numbers
from hopscope.studies.depth.story.opening import task_section, verdict_section
from hopscope.studies.depth.story.order import order_section
from hopscope.studies.depth.story.sweeps import specification_section, steps_section
from hopscope.studies.ledger import told

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SCHEMA_VERSION = 1


def write_story(
    run: RunFolder,
    config: DepthStudyConfig,
    evidence: "Evidence",
    results: AllResults,
    ledger: Sequence[JudgedClaim],
) -> None:
    """Write `story.json`."""
    numbers = Numbers()
    sections = [
        task_section(config, numbers),
        verdict_section(config),
        depth_section(config, results, numbers),
        order_section(config, results, numbers),
        accuracy_section(config, results, numbers),
        theory_section(config, results, numbers),
        steps_section(config, results, numbers),
        specification_section(config, evidence, results, numbers),
    ]
    models = sum(len(found.seeds) for found in results.values())
    story = {
        "schema_version": SCHEMA_VERSION,
        "title": "Following a chain: how many layers does each step take?",
        "subtitle": f"{len(results)} configurations, {models} models, measured on held-out samples",
        "numbers": numbers.entries,
        "claims": told(ledger),
        "sections": [_with_figures(each, figure_names(config)) for each in sections if each is not None],
    }
    run.write_json("story.json", story)


def _with_figures(section: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """A section without the figures that this run has nothing for."""
    blocks = section["blocks"]
    assert isinstance(blocks, list)
    kept = [block for block in blocks if block["kind"] != "figure" or block["name"] in names]
    return {**section, "blocks": kept}
