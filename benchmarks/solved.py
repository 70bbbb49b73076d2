"""Seconds until seeds have learned: recall in permutation lookup, or every step of a chain.

Each contestant trains one seed after another.  A seed that does not learn in time counts with all its seconds, so that
the sum is a lower bound, and says so.
"""

import time
from collections.abc import Callable, Iterator

from torch import Tensor

from hopscope.tasks import Batch, Task, held_out

from ._plain import Plain
from ._shapes import STEPS, Ours, shape_of
from ._timing import Asked, Comparison, Turns, compared

BAR, EVERY, SAMPLES = 0.99, 250, 2048
LIMIT = {"tiny": 500, "permutation": 36_000}
_USUAL_LIMIT = 10_000


def measure(asked: Asked) -> Iterator[Comparison]:
    """One comparison, by default of permutation lookup; as many seeds as rounds are asked for."""
    shape, limit = shape_of(asked, "permutation"), LIMIT.get(asked.model or "permutation", _USUAL_LIMIT)
    batch = held_out(shape.task, SAMPLES)
    contestants: dict[str, Callable[[int], Ours | Plain]] = {
        "hopscope": lambda seed: Ours(shape, [seed]),
        "plain PyTorch": lambda seed: Plain(shape, [seed]),
    }
    found = {name: [until_learned(make(seed), shape.task, batch, limit) for seed in range(asked.rounds)]
             for name, make in contestants.items()}  # fmt: skip
    turns = {name: Turns([each[1] for each in of], [each[2] for each in of]) for name, of in found.items()}
    steps = {name: [taken if learned else None for taken, _, _, learned in of] for name, of in found.items()}
    learned = {name: f"{sum(each is not None for each in of)} of {len(of)}" for name, of in steps.items()}
    told = {"learned": learned, "seconds": {name: round(sum(of.seconds), 1) for name, of in turns.items()}}
    what = shape.described(bar=BAR, limit_steps=limit, steps=steps)
    yield compared(what, turns, dict.fromkeys(turns, 1.0), "seeds a second", **told)


def until_learned(
    program: Ours | Plain, task: Task, batch: Batch, limit: int
) -> tuple[int, float, float, bool]:
    """Steps taken, seconds of training by the clock and of the cores, and whether the model has learned."""
    steps, seconds, cpu = 0, 0.0, 0.0
    while steps < limit:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(0, EVERY, STEPS):
            program.advance()
            steps += STEPS
        seconds += time.perf_counter() - began
        cpu += time.process_time() - used
        if score(task, program.predictions(batch.inputs), batch) >= BAR:
            return steps, seconds, cpu, True
    return steps, seconds, cpu, False


def score(task: Task, predictions: Tensor, batch: Batch) -> float:
    """Accuracy of the first model: of recall where the task asks for it, else of the worst part."""
    recall = task.skills(batch).get("recall")
    if recall is not None:
        right = predictions.argmax(-1) == batch.targets
        return float(right[:1][recall].double().mean())
    return min(float(share[0]) for share in task.scores(predictions, batch).values())
