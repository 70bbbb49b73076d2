"""Where the time of a training step goes on a GPU, and how far rounded steps are from float32.

`PYTHONPATH=src python campaigns/profile_steps.py --home DIR --out FILE abc-torch-schedule:0,1,2,3 bfloat16`

Members of a reading of the queue take the same first steps under each variant, by the engine that trains them; beside
them stand steps of the general engine in float32.  What is printed and written: losses of every step and their largest
relative distance from float32, seconds until the first step (compiling), milliseconds of a step, of an evaluation and
of copying the weights to the host, and the kernels that take most of a step.  The status is 3 where a variant's losses
leave those of float32 by more than `--tolerance`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from background import QUEUE, REPOSITORY
from together import Reading, name_of, reading_of

from hopscope.executors.timing import Steps
from hopscope.training.config import TrainJob
from hopscope.training.engines import EngineName

VARIANTS = ("float32", "tf32", "bfloat16")
"""Of products; `tf32` is float32 with factors of 11 significant bits, which no training uses."""

KERNELS = 18


def synchronised(device: str) -> float:
    """The clock, once the device has done all it was told."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds(work: Callable[[], object], times: int, device: str) -> float:
    """Of one call, the mean of some."""
    began = synchronised(device)
    for _ in range(times):
        work()
    return (synchronised(device) - began) / times * 1e3


def kernels(work: Callable[[], object], times: int) -> list[dict[str, Any]]:
    """Those that take most of a call: name, milliseconds and launches of one call."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(times):
            work()
        torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda each: -each.self_device_time_total)
    return [
        {
            "kernel": each.key[:110],
            "milliseconds": each.self_device_time_total / times / 1e3,
            "launches": each.count / times,
        }
        for each in found[:KERNELS]
    ]


def first_losses(
    job: TrainJob, reading: Reading, engine: EngineName, device: str, count: int
) -> tuple[Steps, list[list[float]], float]:
    """Losses of the first steps `[step][member]`, with what took them, and seconds until the first was taken."""
    began = synchronised(device)
    steps = Steps(job, reading.study.task(job, device), engine, device)
    losses = [steps.take().clone()]
    compiled = synchronised(device) - began
    losses += [steps.take().clone() for _ in range(count - 1)]
    return steps, [each.tolist() for each in losses], compiled


def measured(variant: str, reading: Reading, options: argparse.Namespace) -> dict[str, Any]:
    """All that is measured of one variant."""
    device = options.device
    torch.set_float32_matmul_precision("high" if variant == "tf32" else "highest")
    precision = "float32" if variant == "tf32" else variant
    job = reading.job()
    job = job.model_copy(update={"training": job.training.model_copy(update={"precision": precision})})
    steps, losses, compiled = first_losses(job, reading, options.engine, device, options.steps)
    found: dict[str, Any] = {"losses": losses, "first_step_seconds": compiled}
    found["step_milliseconds"] = milliseconds(steps.take, options.steps, device)
    found["member_steps_per_second"] = len(job.members) / found["step_milliseconds"] * 1e3
    evaluate = reading.study.evaluator(next(iter(reading.units.values())), job, steps.task)

    def evaluated() -> None:
        with torch.no_grad():
            for values in evaluate(steps.model, range(len(job.members))).values():
                values.tolist()

    evaluated()
    found["evaluation_milliseconds"] = milliseconds(evaluated, 3, device)
    copy = lambda: steps.model.parameters.flat.detach().to("cpu", copy=True)  # noqa: E731
    found["copy_milliseconds"] = milliseconds(copy, 3, device)
    if device == "cuda":
        found["kernels"] = kernels(steps.take, 3)
        found["memory_mib"] = torch.cuda.max_memory_allocated() >> 20
    torch.set_float32_matmul_precision("highest")
    return found


def distance(found: list[list[float]], expected: list[list[float]]) -> float:
    """Largest relative distance of two records of losses."""
    one, other = torch.tensor(found), torch.tensor(expected)
    return float(((one - other).abs() / other.abs()).max())


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="profile_steps.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("models", metavar="READING:MEMBERS")
    parser.add_argument("variants", nargs="+", choices=VARIANTS)
    parser.add_argument("--home", type=Path, default=Path("profile"), help="folder to work in")
    parser.add_argument("--queue", type=Path, default=REPOSITORY / QUEUE)
    parser.add_argument("--out", type=Path, default=Path("profile.json"))
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--engine", default="compiled")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tolerance", type=float, default=0.05)
    options = parser.parse_args()
    name, _, members = options.models.partition(":")
    reading = reading_of(options.home, options.queue, name, list(map(int, members.split(","))))
    found: dict[str, Any] = {
        "models": options.models,
        "device": name_of(options.device),
        "torch": torch.__version__,
        "steps": options.steps,
        "variants": {},
    }
    plain = reading.job()
    plain = plain.model_copy(update={"training": plain.training.model_copy(update={"precision": "float32"})})
    _, found["float32_losses"], _ = first_losses(plain, reading, "general", options.device, options.steps)
    for variant in options.variants:
        each = measured(variant, reading, options)
        each["distance"] = distance(each["losses"], found["float32_losses"])
        found["variants"][variant] = each
        # After every variant: a call may end before the last.
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        told = {key: value for key, value in each.items() if key not in ("losses", "kernels")}
        print(json.dumps({"variant": variant, **told}), flush=True)
        for kernel in each.get("kernels", []):
            print(
                f"  {kernel['milliseconds']:8.3f} ms {kernel['launches']:6.1f} x {kernel['kernel']}",
                flush=True,
            )
    return 3 if any(each["distance"] > options.tolerance for each in found["variants"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
