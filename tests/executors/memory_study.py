"""A study that tells how much memory its worker holds, and may be told to leak."""

import numpy as np

import hopscope as hs

_LEAKED = []


class Echo(hs.Task):
    """Repeat the first token."""

    length: int = 3
    leak: int = 0

    def shape(self) -> hs.Shape:
        return hs.Shape(
            inputs="tokens", input_size=5, positions=self.length, readout=(self.length - 1,), output_size=5
        )

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", 5, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


@hs.measure(when="training")
def resident(context: hs.Context) -> dict[str, object]:
    """Memory that the worker holds, in MiB."""
    _LEAKED.append(np.ones(context.task.task.leak * 131_072))  # MiB of float64
    with open("/proc/self/statm") as file:  # noqa: PTH123
        pages = int(file.read().split()[1])
    return {"resident": np.full(len(context.ensemble.members), pages / 256)}


study = hs.Study(
    name="memory",
    question="Does memory grow with steps?",
    task=Echo(),
    model=hs.Model(layers=2, heads=2, width=16),
    training=hs.Training(steps=600, batch_size=16, evaluate_every=20, checkpoint_every=100),
    seeds=2,
    held_out=64,
    measures=[resident],
)
