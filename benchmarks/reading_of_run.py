"""What it costs to read the circuit of a trained member of a run, and what virtual weights gain there.

A deep model without MLPs is read without its stream (`hopscope.circuits.virtual_model`).  In every round the search
for the first circuit is done in both ways, one after the other; then one whole reading is timed.  Ratios are of the
time that the core was at work.  Both ways must find the same first circuit, or there is no result.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console

from compare import WIDTH_IN_FILES, check_run_options, median_range, provenance, ratios, refuse, spread, write
from hopscope.circuits import reader
from hopscope.circuits.built_in_tasks import ReadTask, task_of
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import READ
from hopscope.circuits.reader import ReaderConfig, Reading, read_circuit
from hopscope.circuits.virtual_model import fits, quickest
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.runs import find_run
from hopscope.training.config import job_of
from hopscope.training.restore import load_ensemble, member_record

SCHEMA_VERSION = 1
AIM = 600.0  # seconds of one core that a whole reading of the paper's model D may take
WAYS = {"virtual": quickest, "stream": lambda model: model}
FIRST = "order by importance"
"""The reader's stage that ends with the first circuit."""


class _Found(Exception):
    """The first circuit is there."""


def first_circuit(model: Transformer, task: ReadTask, way: str) -> tuple[float, Circuit]:
    """Seconds of the core that the search for the first circuit took, and the circuit."""
    stages: dict[str, Any] = {}

    def said(_: str) -> None:
        if FIRST in stages:
            raise _Found

    began = time.process_time()
    with patch.object(reader, "quickest", WAYS[way]):
        try:
            read_circuit(model, task, ReaderConfig(orders=1), stages=stages, progress=said)
        except _Found:
            return time.process_time() - began, Circuit.model_validate(stages[FIRST])
    raise UserError("reading: expected a member that has learned something, found one that has not")


def whole(model: Transformer, task: ReadTask) -> tuple[float, float, Reading]:
    """Seconds, seconds of the core, and the reading."""
    began = time.perf_counter(), time.process_time()
    reading = read_circuit(model, task, ReaderConfig())
    return time.perf_counter() - began[0], time.process_time() - began[1], reading


def record(
    model: Transformer,
    origin: dict[str, Any],
    searches: dict[str, list[float]],
    times: tuple[float, float, Reading],
) -> dict[str, Any]:
    """Everything measured and where, as JSON values."""
    seconds, cpu_seconds, reading = times
    shape = model.config
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "reading of a run",
        "unit": "seconds of one reading with one thread",
        "settings": {
            **origin, "layers": shape.layers, "heads": shape.heads, "width": shape.width,
            "head_size": shape.head_size, "learned": list(reading.learned),
        },
        "aim_seconds": AIM,
        "provenance": provenance(),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "verdict": reading.verdict,
        "paths": len(reading.circuit.paths),
        "minimal_circuits": len(reading.minimal),
        "first_circuit_cpu_seconds": {way: spread(each) for way, each in searches.items()},
        "stream_over_virtual": spread(ratios(searches["stream"], searches["virtual"])),
    }  # fmt: skip


def show(result: dict[str, Any], console: Console) -> None:
    """A few lines."""
    found = result["first_circuit_cpu_seconds"]
    settings = ", ".join(f"{name} {value}" for name, value in result["settings"].items())
    whole = f"{result['seconds']:.0f} s, {result['cpu_seconds']:.0f} s of a core (aim {result['aim_seconds']:.0f})"
    for line in (
        f"Reading a trained model: {settings}",
        f"whole reading: {whole}; {result['paths']} paths, {result['verdict']}",
        f"first circuit by virtual weights: {median_range(found['virtual'], '.1f')} s of a core",
        f"first circuit by the stream: {median_range(found['stream'], '.1f')} s of a core",
        f"stream ÷ virtual, within a round: {median_range(result['stream_over_virtual'], '.2f')}",
    ):
        console.print(line, highlight=False, markup=False)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reading_of_run", description=__doc__, allow_abbrev=False)
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--member", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    options = parser.parse_args(argv)
    check_run_options(options)
    return options


def main(argv: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Measure, print and write; 0, or 1 if there is no result."""
    options = _options(argv)
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
    torch.set_num_threads(1)
    try:
        run = find_run(options.run)
        place = member_record(run, options.member)
        unit = run.unit(place.unit)
        step = unit.checkpoint()[0]
        model, task = load_ensemble(unit, step).select([place.index]), task_of(job_of(unit).task)
        if not fits(model):
            raise UserError(
                "reading: expected a model without MLPs and with narrow heads, found another shape"
            )
        searches: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(1, options.rounds + 1):
            circuits = {}
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                seconds, circuits[way] = first_circuit(model, task, way)
                searches[way].append(seconds)
                console.print(
                    f"round {number} of {options.rounds}: {way}, {seconds:.1f} s of a core", highlight=False
                )
            if circuits["virtual"].paths != circuits["stream"].paths:
                print("reading: expected the same first circuit in both ways, found others", file=sys.stderr)
                return 1
        origin = {"study": run.study, "run": run.hash, "member": options.member, "step": step}
        times = whole(model, task)
    except UserError as error:
        refuse(str(error))
    result = record(model, origin, searches, times)
    show(result, console)
    if options.out is not None:
        write(options.out, result)
    return 0 if times[2].verdict == READ else 1


if __name__ == "__main__":
    sys.exit(main())
