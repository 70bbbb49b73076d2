"""Numbers that belong to a results version: a few short trainings, whatever else of a run depends on the code.

`python release/golden.py` writes `tests/release/golden.json`.  Where the numbers have changed it refuses, until
`RESULTS_VERSION` in `src/hopscope/runs/hashing.py` is raised: a run of the old version must not be continued by code
that computes something else.  `tests/release/test_golden.py` compares at every run of the tests.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "tests" / "release" / "golden.json"

STEPS, SEEDS = 5, (3, 5)

HELD_OUT: dict[str, tuple[Any, ...]] = {"permutation": ("repeats",), "chains": (11,), "equations": (11, 2)}
"""Task → which of its held-out samples are asked for."""

TOLERANCE = 2e-5
"""Relative; what processors, threads and versions of torch change in so few steps is a hundred times smaller."""

STUDY = '''
import hopscope as hs

WEIGHTS = {"even": 0.5, "odd": [1, 2]}

def share(row, least=WEIGHTS["even"]):
    """Words, which do not count."""
    label = f"""{row['metric']!r:>{7}} of {row['member']}: {'it' if least else "that's"}"""
    return label, f"{row.get('split', {})} {{braces}}\\n" if row else ""

class Copy(hs.Task):
    """Repeat the last but one."""

    length: int = 7

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=self.length, readout=(6,), output_size=5)

    def sample(self, draws):
        tokens = draws.integers(f"tokens {'of'} {self.length}", 5, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., 5:6])

value = lambda evidence: [share(row) for row in evidence if (found := row.get("value")) and found > 0]
'''
"""A study as users write it.  Python writes its f-strings in other quotes since 3.12; its hashes must not follow."""


def jobs() -> dict[str, tuple[str, Any]]:
    """Name → engine, and what it trains: every engine of a CPU, every task of the package."""
    from hopscope.models.config import TransformerConfig
    from hopscope.tasks.config import EquationsConfig, PermutationConfig, RetrievalConfig
    from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob

    layer = {"heads": 2, "width": 10, "norm": "post", "activation": "relu", "init": "encoder"}
    stack = {"layers": 2, "heads": 2, "head_dim": 3, "width": 23, "positions": "carried", "position_size": 2}
    words = {"layers": 1, "heads": 1, "width": 7, "positions": "learned", "init": "gpt2"}
    stack["init"] = "gpt2"
    permuted, chained = (
        PermutationConfig(values=3, repeat_ratio=0.5),
        RetrievalConfig(chains=2, symbol_dim=2, steps=2),
    )
    several: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "permutation by autograd": ("general", permuted, layer),
        "permutation by fused": ("fused", permuted, layer),
        "chains by autograd": ("general", chained, stack | {"mlp_ratio": 1.5}),
        "chains by stacked": ("stacked", chained, stack | {"mlp_ratio": 1.5}),
        "chains by virtual": ("virtual", chained, stack | {"mlp_ratio": 0.0}),
        "equations by autograd": ("general", EquationsConfig(), words),
    }
    made = {}
    for name, (engine, task, shape) in several.items():
        on = task.on()
        sizes = {"length": on.positions, "input_size": on.input_size, "output_size": on.output_size}
        model = TransformerConfig(input_kind=on.input_kind, readout=on.readout, **sizes, **shape)
        training = TrainingConfig(
            steps=STEPS, batch_size=13, optimizer="adam", learning_rate=3e-3, betas=(0.9, 0.999), warmup_steps=2,
            schedule="constant", clip_norm=1.0, weight_decay=0.1,
        )  # fmt: skip
        members = tuple(MemberPlan(member=index, seed=seed) for index, seed in enumerate(SEEDS))
        made[name] = engine, TrainJob(label=name, task=task, model=model, training=training, members=members)
    return made


def trained(engine: str, job: Any) -> dict[str, list[float]]:
    """Each member's losses step by step, held-out loss and length of its weights after the last one."""
    from hopscope.executors.timing import Steps

    task = job.task.on()
    steps = Steps(job, task, engine)
    losses = [steps.take().tolist() for _ in range(STEPS)]
    flat, batch = (
        steps.model.parameters.flat.detach(),
        task.evaluation(*HELD_OUT[job.label.partition(" ")[0]]),
    )
    return {f"step {index}": loss for index, loss in enumerate(losses)} | {
        "weights": flat.norm(dim=1).tolist(),
        "held-out": task.losses(steps.model(batch.inputs), batch)["loss"].tolist(),
    }


def names() -> dict[str, str]:
    """Hashes of a study's code, by which its runs are named and its claims registered."""
    from hopscope.sources import source_hash

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden_study.py"
        path.write_text(STUDY, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("golden_study", path)
        assert spec is not None and spec.loader is not None
        module = sys.modules["golden_study"] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            return {"task": source_hash(module.Copy), "value": source_hash(module.value)}
        finally:
            del sys.modules["golden_study"]


def computed() -> dict[str, Any]:
    """All of it, as the file holds it."""
    from hopscope.runs.hashing import RESULTS_VERSION
    from hopscope.training.engines import ENGINES

    numbers = {name: trained(*each) for name, each in jobs().items() if ENGINES[each[0]].installed()}
    return {"results_version": RESULTS_VERSION, "names": names(), "numbers": numbers}


def differences(kept: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Where two of them differ by more than rounding; what was not computed here is left out."""
    told = [f"names, {name}: {kept['names'].get(name)} → {each}" for name, each in found["names"].items()
            if kept["names"].get(name) != each]  # fmt: skip
    for name, rows in found["numbers"].items():
        for row, values in rows.items():
            before = kept["numbers"].get(name, {}).get(row)
            if before is None or any(
                abs(a - b) > TOLERANCE * max(abs(a), abs(b)) for a, b in zip(before, values, strict=True)
            ):
                told.append(f"{name}, {row}: {before} → {values}")
    return told


def main() -> int:
    """Writes the file, unless numbers changed under the same results version."""
    found = computed()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else None
    if kept and kept["results_version"] == found["results_version"] and (told := differences(kept, found)):
        print(*told, sep="\n")
        print(
            "numbers have changed: raise RESULTS_VERSION in src/hopscope/runs/hashing.py, then write them again"
        )
        return 1
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
