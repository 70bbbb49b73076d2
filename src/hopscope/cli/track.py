"""The command `hopscope track`: send what a run has recorded to trackers."""

import dataclasses
from pathlib import Path

from tyro.conf import Positional

from hopscope.cli.parsing import joined, parse
from hopscope.executors.tracking import check_trackers, send
from hopscope.executors.tracking.follower import tracking_folder
from hopscope.executors.tracking.sinks import Tracker, how_to_look
from hopscope.runs import find_run


@dataclasses.dataclass
class Options:
    """Send what a run has recorded, and a tracker lacks, to TensorBoard, Weights & Biases or trackio.

    A run that is still trained can be sent again later: each number is sent once.  `hopscope run STUDY --tracker NAME`
    sends while it trains.
    """

    path: Positional[Path]
    """Run folder, or a root that holds exactly one run."""
    tracker: tuple[Tracker, ...]
    """One or several: tensorboard, wandb, trackio."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(Options, joined(arguments, ["tracker"]), "track")
    check_trackers(options.tracker)
    run = find_run(options.path)
    for tracker in dict.fromkeys(options.tracker):
        send(run, tracker)
        print(f"{tracker}: {how_to_look(tracker, tracking_folder(run, tracker), run.study)}")
    return 0
