"""The page of the study of circuits in words; every number with the file and the key it came from."""

from collections.abc import Sequence

from hopscope.claims import JudgedClaim
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, figure, section, text
from hopscope.studies.chains import story
from hopscope.studies.chains.evidence import Member
from hopscope.studies.circuits.config import CircuitsConfig


def write_story(
    run: RunFolder,
    config: CircuitsConfig,
    members: Sequence[Member],
    ledger: Sequence[JudgedClaim],
) -> None:
    """Write `story.json`."""
    numbers = story.Numbers()
    story.write_page(
        run,
        "Which circuits do models learn?",
        f"{config.name}, {len(members)} seeds, every model read and its circuit proven by ablation",
        numbers,
        ledger,
        [
            story.task_section(config, numbers),
            story.verdict_section(config),
            story.circuit_section(config, members, numbers),
            story.reads_section(members, numbers),
            story.modes_section(members, numbers),
            story.controls_section(members, numbers),
            _learning_section(),
            story.gallery_section(config, members),
        ],
    )


def _learning_section() -> Block:
    return section(
        "learning",
        "How they were learned",
        text(
            "Losses through training, and the attention on the paths of the circuit that was read at its end."
        ),
        figure(
            "timeline",
            "Partial losses (lines) and mean attention on the circuit's paths (dashed), by the symbol without which "
            "the path is lost first; dotted: losses over all symbols. Horizontal lines: 0.5, and the plateau.",
            "Line charts of losses and of attention on each path against training steps, one panel for each model.",
        ),
    )
