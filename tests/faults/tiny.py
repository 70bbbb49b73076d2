"""tiny.py: the smallest study whose run has every kind of file; damaged and killed thousands of times."""

import hopscope as hs


class Copy(hs.Task):
    """Repeat the first token."""

    def shape(self) -> hs.Shape:
        return hs.Shape(inputs="tokens", input_size=5, positions=3, readout=(2,), output_size=5)

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", 5, (3,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


@hs.measure(when="end")
def sizes(context: hs.Context) -> list[dict[str, object]]:
    """Mean square of the streams, which are kept as arrays."""
    streams = context.ensemble.cache(context.batch(7).inputs)["blocks.0.hook_resid_post"]
    file = context.save("streams", streams)
    return [{"metric": "stream_size", "value": streams.square().mean((1, 2, 3)), "file": file}]


@hs.measure(when="checkpoints")
def weight_size(context: hs.Context) -> dict[str, object]:
    """Mean square of all weights."""
    return {"weight_size": context.ensemble.transformer.parameters.flat.square().mean(1)}


study = hs.Study(
    name="tiny",
    question="Does it copy?",
    task=Copy(),
    model=hs.Model(layers=1, heads=1, width=4),
    training=hs.Training(steps=4, batch_size=4, evaluate_every=2, checkpoint_every=2),
    seeds=2,
    held_out=16,
    measures=[weight_size, sizes],
    claims=[
        hs.Claim(
            id="C1",
            statement="It copies.",
            source="this file",
            protocol="held-out accuracy",
            value=lambda evidence: evidence.last("accuracy"),
            must=hs.at_least(0.9, unit="fraction"),
            rule="always",
        )
    ],
    figures=[hs.figures.curves("loss")],
)
