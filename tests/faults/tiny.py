"""The smallest study whose run has every kind of file: arrays, measures at checkpoints, a circuit, claims, a figure."""

import hopscope as hs


class Copy(hs.Task):
    """Repeat the first token."""

    def shape(self) -> hs.Shape:
        return hs.Shape(inputs="tokens", input_size=5, positions=3, readout=(2,), output_size=5)

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", 5, (3,))
        relations = {"source": draws.constant(0, (3,))}
        return hs.Batch(inputs=tokens, targets=tokens[..., :1], relations=relations)


@hs.measure(when="checkpoints")
def weight_size(context: hs.Context) -> dict[str, object]:
    """Mean square of all weights."""
    return {"weight_size": context.ensemble.flatten().square().mean(1)}


@hs.measure
def streams(context: hs.Context) -> list[dict[str, object]]:
    """Mean square of the streams, which are kept as arrays."""
    found = context.ensemble.cache(context.batch(7).inputs)["blocks.0.hook_resid_post"]
    file = context.save("streams", found)
    return [{"metric": "stream_size", "value": found.square().mean((1, 2, 3)), "file": file}]


@hs.measure
def circuit(context: hs.Context) -> list[dict[str, object]]:
    """How many reads the first member's circuit has, and the loss without them."""
    from hopscope.circuits.reader import ReaderConfig, read

    how = ReaderConfig(samples=13, validation=11, orders=2, random_circuits=2)
    reading = read(context.ensemble.member(0), context.task, how)
    found = {"reads": float(len(reading.circuit.paths)), "complement": reading.loss["complement"]}
    return [{"metric": name, "value": value, "member": context.members[0]} for name, value in found.items()]


def made() -> hs.Study:
    """Made in a function, it belongs to no file: it is trained in the process that asks for it."""
    return hs.Study(
        name="tiny",
        question="Does it copy?",
        task=Copy(),
        model=hs.Model(layers=1, heads=1, width=12),
        training=hs.Training(
            steps=60, batch_size=16, learning_rate=0.05, evaluate_every=20, checkpoint_every=20
        ),
        seeds=2,
        held_out=16,
        members_per_unit=2,
        measures=[weight_size, streams, circuit],
        claims=[
            hs.Claim(id="C1", statement="It copies.", source="this file", protocol="held-out accuracy",
                     value=lambda evidence: evidence.last("accuracy"), must=hs.at_least(0.9), rule="always")
        ],
        figures=[hs.figures.curves("loss")],
    )  # fmt: skip


study = made()
