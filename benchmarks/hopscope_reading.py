"""One reading of a deep model's circuit: with the streams of lower layers kept, or every pass from the bottom.

The model is planted (`_hidden_plant`), so that a quick reading that is wrong is noticed: then there is no result.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch

from _common import peak_memory_mb, stop
from _hidden_plant import HiddenPlant, hidden_plant
from hopscope.circuits import reader
from hopscope.circuits.built_in_tasks import VectorCircuits
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import READ
from hopscope.circuits.execution import Assignment, Execution, Mode, Passed, Stream
from hopscope.circuits.reader import ReaderConfig

WAYS = ("kept", "afresh")


class Counted(Execution):
    """Passes that are counted.

    Attributes:
        passes, layers: run by the latest reading; the reader makes its executions itself, so their class counts.
    """

    passes = layers = 0

    def onward(self, assignment: Assignment, mode: Mode, before: Sequence[Stream]) -> Passed:
        Counted.passes += 1
        Counted.layers += len(self.model.blocks) + 1 - len(before)
        return super().onward(assignment, mode, before)


class Afresh(Counted):
    """Every pass from the bottom."""

    def run(self, assignment: Assignment, mode: Mode, start: int = 0, base: Passed | None = None) -> Passed:
        return super().run(assignment, mode)


class _Searched(Exception):
    """The search is over."""


class Reading:
    """One reading and its times.

    Attributes:
        seconds, search_seconds: of all, and until the validation began.
        cpu_seconds, search_cpu_seconds: the same in time of a core, which other work on the machine hardly changes.
        stages: what the search found.
    """

    def __init__(self, plant: HiddenPlant, way: str, config: ReaderConfig, only_search: bool):
        self.stages: dict[str, Any] = {}
        Counted.passes = Counted.layers = 0
        self._only_search = only_search
        self._began = time.perf_counter(), time.process_time()
        with patch.object(reader, "Execution", {"kept": Counted, "afresh": Afresh}[way]):
            try:
                found = reader.read_circuit(
                    plant.model, plant.task, config, stages=self.stages, progress=self._noted
                )
                self.right = found.verdict == READ and plant.is_truth(found.circuit)
            except _Searched:
                self.right = plant.is_truth(Circuit.model_validate(self.stages["order by importance"]))
        self.seconds, self.cpu_seconds = self._elapsed()

    def _elapsed(self) -> tuple[float, float]:
        return time.perf_counter() - self._began[0], time.process_time() - self._began[1]

    def _noted(self, stage: str) -> None:
        if stage == "validation":
            self.search_seconds, self.search_cpu_seconds = self._elapsed()
            self.counts = {"passes": Counted.passes, "layers": Counted.layers}
            if self._only_search:
                raise _Searched


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; what is left out is the reader's own."""
    parser = argparse.ArgumentParser(prog="hopscope_reading", description=__doc__, allow_abbrev=False)
    parser.add_argument("--way", choices=WAYS, default="kept", help="what becomes of lower layers")
    parser.add_argument("--only-search", action="store_true", help="leave the validation out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--orders", type=int, default=ReaderConfig().orders, help="random orders of the search"
    )
    parser.add_argument("--samples", type=int, default=VectorCircuits.samples, help="that the search uses")
    options = parser.parse_args(argv)
    for name in ("threads", "samples"):
        if getattr(options, name) < 1:
            stop(f"--{name}: expected at least 1, found {getattr(options, name)}; use for example --{name} 2")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Read once, print one JSON line; 1 if what was read is not what was planted."""
    options = read_options(argv)
    torch.set_num_threads(options.threads)
    plant = hidden_plant()
    config = ReaderConfig(orders=options.orders, samples=options.samples)
    reading = Reading(plant, options.way, config, options.only_search)
    if not reading.right:
        print(
            "hopscope_reading: expected the planted circuit, found another; the time is void", file=sys.stderr
        )
        return 1
    result = {
        "name": options.way,
        "seconds": None if options.only_search else reading.seconds,
        "cpu_seconds": None if options.only_search else reading.cpu_seconds,
        "search_seconds": reading.search_seconds,
        "search_cpu_seconds": reading.search_cpu_seconds,
        **{f"search_{name}": count for name, count in reading.counts.items()},
        "found": hashlib.sha256(json.dumps(reading.stages).encode()).hexdigest(),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "settings": {**vars(options), **plant.shape},
    }
    print(json.dumps(result, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
