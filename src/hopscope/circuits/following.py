"""Following the circuit of a run's member back through its checkpoints, into the unit's analysis folder."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import SEQUENCES, ReaderConfig, formation_name, maps_name, spaced
from hopscope.circuits.emergence import formation, maps
from hopscope.circuits.goal import Setting
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.record import path_json, read_member
from hopscope.runs import UnitFolder
from hopscope.training.restore import load_ensemble

MOST_MAPS = 24
"""Checkpoints of which attention maps are kept."""

Example = Callable[[Grammar], dict[str, Any]]
"""What a page tells of the sequence that the maps are of: `tokens`, its positions, and `rows`, the row roles."""


def read_and_follow(
    unit: UnitFolder,
    index: int,
    member: int,
    step: int,
    config: ReaderConfig,
    setting: Setting,
    example: Example,
) -> None:
    """Read the circuit of a member, and follow its paths through the checkpoints; what is on record is kept.

    Args:
        unit: that the member is in.
        index: its place there.
        member: its number in the run.
        step: of the last checkpoint.
        config: how to read.
        setting: how its task is put to the reader.
        example: see `Example`; given the first of the sequences that are watched.

    Raises:
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    reading = read_member(unit.run, member, step, config)
    if unit.analysis_path(formation_name(member), step).is_file():
        return
    batch = setting.batch(0, SEQUENCES, "watch")
    steps = [at for at, _ in unit.checkpoints() if at <= step]
    models = [(at, setting.model(load_ensemble(unit, at).select([index]))) for at in steps]
    found = formation(Circuit.model_validate(reading["circuit"]), models, setting, batch)
    shown = spaced(steps, MOST_MAPS)
    of_heads = [bytes_.numpy() for _, bytes_ in maps((pair for pair in models if pair[0] in shown), batch)]
    unit.write_analysis(maps_name(member), step, {"steps": np.array(shown), "maps": np.stack(of_heads)})
    # Last, because its file says that both are there.
    unit.write_analysis(
        formation_name(member),
        step,
        {
            "member": member,
            "checkpoints": list(found.checkpoints),
            "paths": [
                {**path_json(path), "attention": list(values)}
                for path, values in zip(found.paths, found.attention, strict=True)
            ],
            **example(setting.grammar(batch, causal=models[0][1].config.causal)),
        },
    )
