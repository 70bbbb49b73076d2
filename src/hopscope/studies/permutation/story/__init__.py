"""The page of the permutation study in words; every number with the file and the key it came from."""

from collections.abc import Mapping, Sequence

from hopscope.claims import JudgedClaim
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block
from hopscope.studies.ledger import told
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.figures import figure_names
from hopscope.studies.permutation.story.beliefs import bayes_section, sub_chance_section
from hopscope.studies.permutation.story.closing import closing_section
from hopscope.studies.permutation.story.learning import loss_section, skill_section, transition_section
from hopscope.studies.permutation.story.mechanism import head_section, mechanism_section
from hopscope.studies.permutation.story.numbers import Numbers
from hopscope.studies.permutation.story.opening import (
    configuration_section,
    task_section,
    verdict_section,
    worked_section,
)
from hopscope.studies.permutation.story.sweeps import sweep_section

SCHEMA_VERSION = 1


def write_story(
    run: RunFolder,
    config: PermutationStudyConfig,
    evidence: Mapping[str, Evidence],
    ledger: Sequence[JudgedClaim],
) -> None:
    """Write `story.json`."""
    numbers = Numbers()
    sections = [
        task_section(config),
        verdict_section(evidence, config),
        configuration_section(config, evidence, numbers),
        worked_section(run, config, evidence),
        loss_section(config, numbers),
        skill_section(run, config, evidence, numbers),
        transition_section(config, evidence, numbers),
        bayes_section(config, evidence, numbers),
        sub_chance_section(config, evidence, numbers),
        mechanism_section(config, evidence, numbers),
        head_section(config, evidence, numbers),
        sweep_section(config, evidence, numbers),
        closing_section(ledger),
    ]
    story = {
        "schema_version": SCHEMA_VERSION,
        "title": "Permutation lookup: does a tiny transformer remember, or only rule out?",
        "subtitle": f"{len(evidence)} configurations, {sum(len(found.seeds) for found in evidence.values())} models, "
        "measured on held-out mappings",
        "numbers": numbers.entries,
        "claims": told(ledger),
        "sections": [_with_figures(each, figure_names(config)) for each in sections if each is not None],
    }
    run.write_json("story.json", story)


def _with_figures(section: Block, names: tuple[str, ...]) -> Block:
    """A section without the figures that this run has nothing for."""
    kept = [block for block in section["blocks"] if block["kind"] != "figure" or block["name"] in names]
    return {**section, "blocks": kept}
