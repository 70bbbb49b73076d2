"""Traces members with nnsight by the names of TransformerLens: `python nnsight_names_worker.py FOLDER …`.

A process of its own, because to import nnsight changes the whole process.  Each folder holds an export and `in.npz`;
every site that was traced goes to `sites.npz` under its name, values that were traced by `RENAME` to `renamed.npz`.
"""

import sys
import warnings
from pathlib import Path

import nnsight
import numpy as np
import torch

import hopscope
from hopscope.models.nnsight import RENAME, to_nnsight
from hopscope.models.sites import site_names


def place(model, name):
    """`blocks.0.attn.hook_q` as an attribute of a traced model."""
    for part in name.split("."):
        model = model[int(part)] if part.isdigit() else getattr(model, part)
    return model


def sites(module, inputs, head):
    model = to_nnsight(module)
    names = site_names(module.config)[:-1]
    found = {}
    with model.trace(inputs):
        for name in names:
            found[name] = place(model, name).output.save()
        predictions = model.output.save()
    with model.trace(inputs):
        model.blocks[1].attn.hook_z.output[:, :, head] = 0.0
        without = model.output.save()
    with model.trace(inputs):
        model.blocks[1].attn.hook_pattern.output = torch.full_like(found["blocks.1.attn.hook_pattern"], 0.125)
        replaced = model.output.save()
    return {**found, "output": predictions, "without_head": without, "replaced_pattern": replaced}


def renamed(module, inputs):
    with warnings.catch_warnings():
        # Every attention has a module named `output`, which nnsight calls `E_output`, and says so.
        warnings.filterwarnings("ignore", "Module '.*attention' has a submodule named 'output'")
        model = nnsight.NNsight(module, rename=RENAME)
    config, found = module.config, {}
    with model.trace(inputs):
        for layer in range(config.layers):
            block, where = model.blocks[layer], f"blocks.{layer}."
            found[f"{where}hook_resid_pre"] = block.input.save()
            for name in ("hook_q", "hook_k", "hook_v"):
                found[f"{where}attn.{name}"] = getattr(block.attn, name).output.save()
            found[f"{where}attn.hook_z"] = block.attn.E_output.input.save()
            found[f"{where}hook_attn_out"] = block.attn.E_output.output.save()
            if config.mlp_size:
                found[f"{where}mlp.hook_pre"] = block.mlp.hook_pre.output.save()
                found[f"{where}mlp.hook_post"] = block.mlp.outer.input.save()
                found[f"{where}hook_mlp_out"] = block.mlp.output.save()
            found[f"{where}hook_resid_post"] = block.output.save()
        if config.norm == "pre":
            found["ln_final.hook_normalized"] = model.ln_final.output.save()
        found["output"] = model.unembed.output.save()
    assert model.blocks[0].ln1.path == model.layers[0].attention_norm.path
    return found


def main() -> None:
    torch.set_num_threads(1)
    for folder in map(Path, sys.argv[1:]):
        given = np.load(folder / "in.npz")
        inputs, head = torch.from_numpy(given["inputs"]), int(given["head"])
        with torch.no_grad():
            for name, found in (
                ("sites", sites(hopscope.load(folder), inputs, head)),
                ("renamed", renamed(hopscope.load(folder), inputs)),
            ):
                np.savez(folder / f"{name}.npz", **{key: value.numpy() for key, value in found.items()})


if __name__ == "__main__":
    main()
