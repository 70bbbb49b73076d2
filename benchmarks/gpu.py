"""The paper's Figure 4 on one GPU: what its 128 models cost, by sampled steps of every depth, beside simpler ways.

For every kind of target and every number of layers these take turns, each in rounds of real training steps:

ours          the study's own unit: its members as one program, compiled, recorded as CUDA graphs
compiled one  the same for one model
graph one     one model, PyTorch's own kernels recorded as CUDA graphs
eager one     one model, step by step

All use the study's precision and draw their data on the device.  The minutes of a whole study are those of its sampled
steps: they do not hold evaluations, compilation or checkpoints, and a run's own record is what counts.  `--device cpu`
tries the script where there is no GPU; what it measures there says nothing of one.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from compare import WIDTH_IN_FILES, check_run_options, median_range, provenance, ratios, refuse, spread, write
from hopscope.errors import UserError
from hopscope.executors.timing import Steps, operations
from hopscope.studies import find_study
from hopscope.studies.depth.config import PRESETS
from hopscope.training.config import TrainJob
from hopscope.training.engines import torch_compile
from hopscope.training.engines.torch_compile import WARM_UP
from hopscope.training.threads import prepare

SCHEMA_VERSION = 1

PEAK_OPERATIONS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bfloat16 operations per second by the maker's data sheets, by a part of the device's name."""

COPIED_BYTES = 1 << 28

AGREEMENT_STEPS = 20


class GraphOne:
    """Steps of PyTorch's own kernels, recorded and replayed; without a compiler's help."""

    def __init__(self, job: TrainJob, task: Any, device: str):
        steps = Steps(job, task, "general", device)
        seeds = torch.tensor([member.data_seed for member in job.members], device=device)
        model = steps.model.at(job.training.precision)
        self._gradient = torch_compile.gradient(
            model, task, job.training, seeds, steps.optimizer.gradient, backend="eager"
        )
        self._update = torch_compile.update(steps.optimizer, backend="eager")
        self.step = 0

    def take(self) -> Tensor:
        """Take a step; returns each member's loss before it `[member]`."""
        loss = self._gradient(self.step)["loss"]
        self._update(self.step, loss)
        self.step += 1
        return loss


Make = Callable[[TrainJob, Any, str], Any]

WAYS: dict[str, tuple[bool, Make]] = {
    "ours": (True, lambda job, task, device: Steps(job, task, "compiled", device)),
    "compiled one": (False, lambda job, task, device: Steps(job, task, "compiled", device)),
    "graph one": (False, GraphOne),
    "eager one": (False, lambda job, task, device: Steps(job, task, "general", device)),
}
"""Whether all members of a unit are trained together, and what takes the steps."""


@dataclass(frozen=True)
class Timed:
    """Steps of one way at one depth.

    Attributes:
        first_seconds: for the steps before the clock runs: compiling, recording.
        seconds: per step of all its members, a number for each round.
        members: that a step trains.
        peak_mib: memory of the device at its highest; none on a CPU.
    """

    first_seconds: float
    seconds: list[float]
    members: int
    peak_mib: float | None

    @property
    def member_steps(self) -> list[float]:
        """Members' steps per second."""
        return [self.members / each for each in self.seconds]


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_per_step(take: Callable[[], Tensor], device: str, seconds: float) -> float:
    """The mean over as many steps as take about so long; nothing waits for the device between them."""
    started = time.perf_counter()
    take()
    synchronise(device)
    count = max(1, round(seconds / (time.perf_counter() - started)))
    started = time.perf_counter()
    for _ in range(count):
        loss = take()
    synchronise(device)
    elapsed = time.perf_counter() - started
    if not bool(loss.isfinite().all()):
        raise UserError("steps: expected a finite training loss, found one that is not; the speed is void")
    return elapsed / count


def timed(job: TrainJob, ways: Sequence[str], device: str, rounds: int, seconds: float) -> dict[str, Timed]:
    """Every way on one unit, in turns."""
    task = find_study("depth").task(job, device)
    alone = job.model_copy(update={"members": job.members[:1]})
    takes: dict[str, Callable[[], Tensor]] = {}
    first: dict[str, float] = {}
    peaks: dict[str, float | None] = {}
    for name in ways:
        together, make = WAYS[name]
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        started = time.perf_counter()
        steps = make(job if together else alone, task, device)
        takes[name] = steps.take
        for _ in range(WARM_UP + 2):
            steps.take()
        synchronise(device)
        first[name] = time.perf_counter() - started
        peaks[name] = (torch.cuda.max_memory_allocated() - before) / 2**20 if device == "cuda" else None
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, take in takes.items():
            found[name].append(seconds_per_step(take, device, seconds))
    return {
        name: Timed(first[name], found[name], len(job.members) if WAYS[name][0] else 1, peaks[name])
        for name in ways
    }


def agreement(job: TrainJob, device: str) -> dict[str, float]:
    """How far the members' losses are from those of float32, step by step, in parts of them; the largest of all.

    The same members take the same steps in three ways: by the study's engine at its precision, by autograd at its
    precision, and by autograd in float32.
    """
    full = job.model_copy(update={"training": job.training.model_copy(update={"precision": "float32"})})
    task = find_study("depth").task(job, device)
    losses = {}
    for name, made, engine in (
        ("exact", full, "general"),
        ("eager", job, "general"),
        ("ours", job, "compiled"),
    ):
        steps = Steps(made, task, engine, device)  # type: ignore[arg-type]
        losses[name] = torch.stack([steps.take().double().clone() for _ in range(AGREEMENT_STEPS)])
    exact = losses["exact"]
    return {name: ((losses[name] - exact) / exact).abs().max().item() for name in ("eager", "ours")}


def bytes_per_second(device: str) -> float:
    """What a copy within the device's memory moves: bytes read and written."""
    source = torch.ones(COPIED_BYTES // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / seconds_per_step(lambda: target.copy_(source)[:1], device, 0.2)


def bytes_moved(job: TrainJob) -> float:
    """Bytes that a step moves through memory if every tensor of a layer is written once and read once by each user.

    By width, forwards and for each position: the stream is read by the norm (4), the normed vector written and read
    (4), queries, keys and values written and read (12), what heads give written and read (4), the stream read and
    written (8); for an MLP the same for its norm, stream (4, 4, 8) and its hidden vectors before and after the
    activation (2, 2, 2 and 2 a unit).  The way back reads and writes about twice as much.
    """
    model, training = job.model, job.training
    mlp = 16 * model.width + 8 * model.mlp_size if model.mlp_size else 0
    positions = len(job.members) * training.batch_size * model.length
    return 3.0 * (32 * model.width + mlp) * model.layers * positions


def peak_operations(device_name: str) -> float | None:
    return next((peak for part, peak in PEAK_OPERATIONS.items() if part in device_name), None)


def row_of(
    job: TrainJob, results: Mapping[str, Timed], bandwidth: float, peak: float | None
) -> dict[str, Any]:
    """One depth, as JSON values."""
    per_step = operations(job) / job.training.steps
    ways = {
        name: {
            "first_seconds": round(each.first_seconds, 2),
            "seconds_per_step": spread(each.seconds),
            "member_steps_per_second": spread(each.member_steps),
            "members": each.members,
            "peak_mib": each.peak_mib,
        }
        for name, each in results.items()
    }
    row: dict[str, Any] = {
        "label": job.label,
        "layers": job.model.layers,
        "steps": job.training.steps,
        "ways": ways,
    }
    if "ours" not in results:
        return row
    ours = results["ours"]
    middle = sorted(ours.seconds)[len(ours.seconds) // 2]
    row["ratios"] = {
        name: spread(ratios(ours.member_steps, each.member_steps))
        for name, each in results.items()
        if name != "ours"
    }
    row["of_bandwidth"] = bytes_moved(job) / middle / bandwidth
    row["of_peak_operations"] = None if peak is None else per_step / middle / peak
    row["unit_minutes"] = middle * job.training.steps / 60.0
    return row


def whole_study(rows: Sequence[Mapping[str, Any]], models: Mapping[str, int]) -> dict[str, Any]:
    """Minutes for all models by sampled steps, for every way; and each way's time over ours."""
    minutes = {
        name: sum(_minutes(row, name) * models[row["label"]] for row in rows) for name in rows[0]["ways"]
    }
    ours = minutes.get("ours")
    return {
        "models": sum(models[row["label"]] for row in rows),
        "minutes_by_sampled_steps": minutes,
        "over_ours": {name: each / ours for name, each in minutes.items() if name != "ours"} if ours else {},
    }


def _minutes(row: Mapping[str, Any], name: str) -> float:
    """Of the device, for one model."""
    way = row["ways"][name]
    return float(way["seconds_per_step"]["median"] * row["steps"] / way["members"] / 60.0)


def show(result: Mapping[str, Any], console: Console) -> None:
    """A table of depths, and what they add up to."""
    names = list(result["rows"][0]["ways"])
    table = Table(
        title=escape(f"Members' steps per second on {result['device']}: median [min–max] over rounds")
    )
    for heading in ("unit", *names, "of bandwidth", "of peak", "min a unit"):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for row in result["rows"]:
        speeds = [
            escape(median_range(row["ways"][name]["member_steps_per_second"], ",.1f")) for name in names
        ]
        shares = [row.get(name) for name in ("of_bandwidth", "of_peak_operations")]
        table.add_row(
            row["label"],
            *speeds,
            *("–" if share is None else f"{share:.1%}" for share in shares),
            f"{row['unit_minutes']:.1f}" if "unit_minutes" in row else "–",
        )
    console.print(table)
    total = result["whole_study"]
    for name, minutes in total["minutes_by_sampled_steps"].items():
        over = total["over_ours"].get(name)
        beside = "" if over is None else f", {over:.2f} times ours"
        console.print(f"all units, by sampled steps, {name}: {minutes:.1f} min{beside}", highlight=False)
    for label, each in result["agreement"].items():
        console.print(
            f"{label}: losses of {AGREEMENT_STEPS} steps beside float32, largest difference: "
            f"eager {each['eager']:.1e}, ours {each['ours']:.1e}",
            highlight=False,
        )  # fmt: skip


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", choices=tuple(PRESETS), default="paper", help="of the depth study")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ways", nargs="+", metavar="WAY", default=list(WAYS), help=", ".join(WAYS))
    parser.add_argument("--layers", nargs="+", type=int, metavar="N", help="by default all of the preset")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of steps, a round, way and depth")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    options = parser.parse_args(argv)
    check_run_options(options)
    unknown = [name for name in options.ways if name not in WAYS]
    if unknown:
        refuse(f"--ways: expected names out of {', '.join(WAYS)}, found {unknown[0]}; correct the name")
    return options


def chosen_jobs(preset: str, layers: Sequence[int] | None) -> tuple[list[TrainJob], dict[str, int]]:
    """One unit of each configuration, and how many models of it the study has."""
    jobs: dict[str, TrainJob] = {}
    models: dict[str, int] = {}
    for job in find_study("depth").jobs(PRESETS[preset]):
        jobs.setdefault(job.label, job)
        models[job.label] = models.get(job.label, 0) + len(job.members)
    kept = [job for job in jobs.values() if layers is None or job.model.layers in layers]
    if not kept:
        there = ", ".join(map(str, sorted({job.model.layers for job in jobs.values()})))
        refuse(f"--layers: expected some of {there}, found none; correct the numbers")
    return kept, models


def measured(options: argparse.Namespace, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """What was measured so far, as JSON values: after each unit, so that a machine that goes takes nothing with it."""
    device = options.device
    jobs, models = chosen_jobs(options.preset, options.layers)
    name = torch.cuda.get_device_name() if device == "cuda" else "a CPU (a try; says nothing of a GPU)"
    bandwidth, peak = bytes_per_second(device), peak_operations(name)
    deepest = {job.label.partition(",")[0]: job for job in jobs}
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "suite": "gpu",
        "preset": options.preset,
        "device": name,
        "copied_bytes_per_second": bandwidth,
        "peak_operations_per_second": peak,
        "provenance": provenance(),
        "agreement": {},
        "rows": [],
    }
    for job in jobs:
        results = timed(job, options.ways, device, options.rounds, options.seconds)
        result["rows"].append(row_of(job, results, bandwidth, peak))
        say(
            f"{job.label}: "
            + ", ".join(f"{way} {max(each.member_steps):,.1f}/s" for way, each in results.items())
        )
        if job in deepest.values():
            result["agreement"][job.label] = agreement(job, device)
        result["whole_study"] = whole_study(result["rows"], models)
        yield result


def main(argv: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Measure, print and write; 0, or 2 where there is no GPU."""
    options = _options(argv)
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
    if options.device == "cuda" and not torch.cuda.is_available():
        refuse(
            "bench: expected a CUDA device for --suite gpu, found none; "
            "to try the script without, run python benchmarks/gpu.py --device cpu --preset smoke"
        )
    prepare(torch.get_num_threads())
    try:
        for result in measured(options, lambda line: console.print(line, highlight=False, markup=False)):
            if options.out is not None:
                write(options.out, result)
    except UserError as error:
        refuse(str(error))
    show(result, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
