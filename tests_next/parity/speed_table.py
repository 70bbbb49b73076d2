"""Steps of both packages' engines, in turn: `python tests_next/parity/speed_table.py > FILE`, on one thread.

One line of JSON for each model: milliseconds of a step, gradient and update, by package and precision (medians), and
quartiles of the ratio of each new step to the old one before it.  It is processor time: what else runs counts little.
"""

import json
import platform
import time
from itertools import count

import torch
from test_training import task_of

from hopscope.executors.timing import Steps
from hopscope.studies import find_study
from hopscope.training.engines import chosen_engine
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.training import engines
from hopscope_next.training.config import Training
from hopscope_next.training.optimiser import Optimiser

MODELS = {
    "permutation, laptop, one member": ("permutation", "laptop", 1),
    "permutation, laptop, five members": ("permutation", "laptop", 5),
    "first steps, smoke": ("first-steps", "smoke", 1),
    "three steps, quick": ("circuits", "laptop", 1),
    "transformers A-C": ("circuits", "paper", 1),
    "transformer D": ("emergence", "paper", 1),
}
SECONDS, MOST, WARM = 10.0, 200, 3


def old_and_new(study, preset, members):
    program = find_study(study)
    job = program.jobs(program.configured(preset, {}))[0]
    job = job.model_copy(
        update={
            "members": job.members[:members],
            "training": job.training.model_copy(update={"precision": "float32"}),
        }
    )
    engine = chosen_engine(job, "cpu")
    found, names = {"old": Steps(job, program.task(job, "cpu"), engine).take}, {"old": engine}
    task, config = task_of(job.task), TransformerConfig(**job.model.model_dump())
    fields = {name: getattr(job.training, name) for name in Training.model_fields}
    fields["examples"] = getattr(job.task, "pool", None)
    for precision in ("float32", "bfloat16"):
        training = Training(**{**fields, "precision": precision})
        name = names[precision] = engines.choose(task, config, training, "cpu")
        found[precision] = stepper(task, config, training, name, job.members)
    return found, names


def stepper(task, config, training, engine, members):
    model = Transformer.initial(config, torch.tensor([each.init_seed for each in members]))
    optimiser = Optimiser(model.flatten(), model.decay_mask(), training)
    rounded = model.at_precision("bfloat16" if training.precision == "bfloat16" else "float32")
    module = engines.load(engine, task, config, training, "cpu")
    seeds = torch.tensor([each.data_seed for each in members])
    gradient = module.gradient(rounded, task, training, seeds, optimiser.gradient)
    update = module.update(optimiser) if hasattr(module, "update") else optimiser.step
    numbers = count()

    def step():
        number = next(numbers)
        update(number, gradient(number)["loss"])

    return step


def timed(steps):
    times = {name: [] for name in steps}
    for _ in range(WARM):
        for step in steps.values():
            step()
    began = time.monotonic()
    while time.monotonic() - began < SECONDS and len(times["old"]) < MOST:
        for name, step in steps.items():
            start = time.thread_time()
            step()
            times[name].append(1e3 * (time.thread_time() - start))
    return {name: torch.tensor(each) for name, each in times.items()}


def main():
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    quarters = torch.tensor([0.25, 0.5, 0.75])
    for name, model in MODELS.items():
        steps, used = old_and_new(*model)
        times = timed(steps)
        ratios = {each: (times[each] / times["old"]).quantile(quarters).tolist() for each in times}
        medians = {each: round(float(times[each].median()), 3) for each in times}
        row = {"model": name, "engines": used, "milliseconds": medians, "rounds": len(times["old"])}
        row["ratio"] = {each: [round(end, 3) for end in ends] for each, ends in ratios.items()}
        print(json.dumps({**row, "processor": platform.processor() or platform.machine()}), flush=True)


if __name__ == "__main__":
    main()
