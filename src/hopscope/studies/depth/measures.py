"""What was measured of the models of a depth run, as rows of the evidence table.

Every row is held-out, has the file that it was taken from, and stands at the last training step.

Measure `final`: losses at the end of training.
    `final_loss`: mean over the evaluations of the final window; part `step_k`: of x_k alone.

Measure `retrieval`: see `hopscope.studies.retrieval_rows`.
"""

from collections.abc import Iterator

from hopscope.runs import RunFolder, diverged_members
from hopscope.runs.curves import Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration
from hopscope.studies.retrieval_rows import retrieval_rows


def measurements(run: RunFolder, config: DepthStudyConfig) -> Iterator[Row]:
    """A row for every number that was measured of a run's models after training.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    for record in run.members:
        configuration = Configuration.from_overrides(record.overrides)
        training, asked = config.training(configuration), config.task(configuration).asked
        for part in (None, *(f"step_{step}" for step in asked)):
            loss = None  # the record of a diverged member ends before the final window
            if record.member not in diverged:
                name = "loss" if part is None else f"loss_{part}"
                loss = metrics.final(name, record.member, training.final_steps())
            yield Row(
                record.member, "final", "final_loss", loss, step=training.steps, part=part, file=GATHERED
            )
        yield from retrieval_rows(run, record, training.steps)
