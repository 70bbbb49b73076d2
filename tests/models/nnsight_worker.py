"""Traces exported members with nnsight and leaves what it saw: `python nnsight_worker.py FOLDER …`.

A process of its own, because to import nnsight changes the whole process: it gives every object a method `save` and
replaces `Tensor.backward`.  Each folder holds an export and `in.npz`; what was seen goes to `out.npz` beside it.
"""

import sys
import warnings
from pathlib import Path

import nnsight
import numpy as np
import torch

import hopscope


def traced(folder: Path) -> nnsight.NNsight:
    with warnings.catch_warnings():
        # Every attention has a module named `output`.  On a traced module that word means what the module returns, so
        # nnsight calls the submodule `E_output`, and says so.
        warnings.filterwarnings("ignore", "Module '.*attention' has a submodule named 'output'")
        return nnsight.NNsight(hopscope.load_module(folder))


def seen(model: nnsight.NNsight, inputs: torch.Tensor, layer: int, head: slice) -> dict[str, torch.Tensor]:
    # Within a trace, values are asked for in the order of the forward pass.
    with model.trace(inputs):
        heads = model.layers[layer].attention.E_output.input.save()
        stream = model.layers[layer].output.save()
        predictions = model.output.save()
    with model.trace(inputs):
        model.layers[layer].attention.E_output.input[..., head] = 0.0
        stream_without = model.layers[-1].output.save()
        without = model.output.save()
    with model.trace(inputs):
        model.layers[layer].attention.query.output[..., head] = 0.0
        undirected = model.output.save()
    return {
        "heads": heads,
        "stream": stream,
        "predictions": predictions,
        "stream_without_head": stream_without,
        "without_head": without,
        "without_queries": undirected,
    }


def main() -> None:
    torch.set_num_threads(1)
    for folder in map(Path, sys.argv[1:]):
        given = np.load(folder / "in.npz")
        first, last = (int(place) for place in given["head"])
        with torch.no_grad():
            found = seen(
                traced(folder), torch.from_numpy(given["inputs"]), int(given["layer"]), slice(first, last)
            )
        np.savez(folder / "out.npz", **{name: tensor.numpy() for name, tensor in found.items()})


if __name__ == "__main__":
    main()
