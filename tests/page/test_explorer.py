"""What explorer and circuit player are given, and the scripts that need no document, run in Node."""

import base64
import itertools
import json
import shutil
import subprocess
from functools import cache
from importlib import resources

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.page.conftest import rows

from hopscope.circuits.reader import ReaderConfig, read
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.page import explorer
from hopscope.page.page import page
from hopscope.runs import Evidence
from hopscope.tasks import Permutation, Retrieval
from hopscope.tasks.samples import held_out
from hopscope.training.config import Training
from hopscope.training.train import train

TEMPLATES = resources.files("hopscope.page") / "templates"
TASKS = {"vectors": Retrieval(steps=1, chains=3, position="pair"), "tokens": Permutation(values=4)}
MODELS = {
    "post, relu, 2 heads": {"norm": "post", "activation": "relu", "heads": 2, "width": 14},
    "pre, gelu, 3 heads, 2 layers": {"layers": 2, "heads": 3, "width": 21, "activation": "gelu"},
    "none, no MLP, everything visible": {"norm": "none", "layers": 3, "mlp_ratio": 0.0, "causal": False},
}  # fmt: skip
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no Node on the PATH")


def evaluate(script, body, value):
    """The JSON result of JavaScript that may use a script of the page, and `input`."""
    code = (
        f"require({json.dumps(str(TEMPLATES / script))});"
        "const input = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        "const plain = (key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);"
        f"process.stdout.write(JSON.stringify((() => {{ {body} }})(), plain));"
    )
    done = subprocess.run(
        ["node", "-e", code], input=json.dumps(value), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@cache
def ensemble(name, kind="tokens", **settings):
    model = Model(**({"width": 12, "layers": 2, "heads": 2} | MODELS.get(name, {}) | settings))
    return Transformer.initial(model.for_task(TASKS[kind].shape()), torch.tensor([3, 5]))


@cache
def trained():
    """Models that look two tokens back and answer: a circuit to read."""
    task = TASKS["vectors"]
    told = Training(steps=400, batch_size=64, learning_rate=4e-3, checkpoint_every=400, evaluate_every=400)
    return train(task, Model(layers=2, heads=2, width=32, mlp_ratio=0.0), told, [7])


@pytest.mark.parametrize(("name", "kind"), [*itertools.product(MODELS, TASKS)])
def test_what_is_kept_of_a_model_is_its_cache(name, kind):
    task, made = TASKS[kind], ensemble(name, kind)
    found = explorer.explored(made, task, member=1, samples=3)
    about, config = explorer.about(found), made.config
    assert found["patterns"].shape == (3, config.layers, config.heads, config.length, config.length)
    assert found["predictions"].shape == (3, len(config.readout_positions), config.output_size)
    assert found["costs"].shape == (config.layers, config.heads) and np.isfinite(found["costs"]).all()
    assert [len(each) for each in about["roles"]] == [config.length] * 3
    cache = made.select([1]).cache(torch.from_numpy(found["inputs"])[None])
    for layer in range(config.layers):
        own = cache[f"blocks.{layer}.attn.hook_pattern"].reshape(
            3, config.heads, config.length, config.length
        )
        assert np.abs(found["patterns"][:, layer] / 255 - own.numpy()).max() <= 0.5 / 255 + 1e-6
    assert all(len(about["tokens"]) >= config.input_size for _ in [0] if kind == "tokens")


@needs_node
@pytest.mark.parametrize(("name", "kind"), [*itertools.product(MODELS, TASKS)])
@pytest.mark.parametrize("edit", [None, "zero", "uniform"])
def test_the_forward_pass_of_the_page_is_that_of_pytorch(name, kind, edit):
    made, task = ensemble.__wrapped__(name, kind, init="encoder"), TASKS[kind]
    for number, view in enumerate(made.weights().values()):  # so that no term of the pass is negligible
        view.add_(0.3 * torch.randn(view.shape, generator=torch.Generator().manual_seed(number)))
    found = explorer.explored(made, task, member=1, samples=2)
    flat = torch.cat([view[1].flatten() for view in made.weights().values()]).half()
    batch = held_out(task, 2)
    rounded = Transformer(made.config, 1).load(
        {name: view[1:].half().float() for name, view in made.weights().items()}
    )
    rows, share = (
        ([2], 1 / (3 if made.config.causal else made.config.length)) if edit == "uniform" else (None, 0.0)
    )
    edits = [{"layer": 0, "head": 1, "rows": rows, "as": edit}] if edit else []

    def edited(pattern):
        pattern = pattern.clone()
        pattern[..., 1, slice(None) if rows is None else rows, :] = share
        return pattern.tril() if made.config.causal else pattern

    sample = batch.take(torch.tensor([0]))
    model = rounded.knowing(task, [5], 0)
    wanted = model.intervene(sample, {"blocks.0.attn.hook_pattern": edited}) if edit else model(sample.inputs)
    case = {"shape": explorer.about(found)["shape"], "weights": base64.b64encode(flat.numpy().tobytes()).decode(),
            "inputs": sample.inputs[0, 0].tolist(), "edits": edits}  # fmt: skip
    body = """const { run, load } = globalThis.hopscopeForward;
        return run(load(input.shape, input.weights), input.inputs, input.edits);"""
    told = evaluate("forward.js", body, case)
    places = made.config.readout_positions
    got = np.array([told["predictions"][place] for place in places])
    assert np.allclose(got, wanted.detach().reshape(len(places), -1).numpy(), atol=2e-4)


def test_a_circuit_that_was_read_is_told_in_words_with_an_example():
    task, made = TASKS["vectors"], trained()
    reading = read(made.member(0), task, ReaderConfig(orders=1, random_circuits=2, most_circuits=1))
    found = explorer.circuit(reading, [(0, made.member(0)), (400, made.member(0))], task)
    about = explorer.about(found)
    assert about["verdict"] == reading.verdict and about["steps"] == [0, 400]
    assert len(about["paths"]) == len(reading.circuit.paths) > 0
    length = made.config.length
    assert found["maps"].shape == (2, len(about["mapped"]), length, length)
    assert len(about["tokens"]) == length and {token["role"] for token in about["tokens"]} == {
        *about["columns"]
    }
    assert all(len(each) == 2 for each in about["curves"].values())
    for path in about["paths"]:
        assert path["query"] in about["columns"] and len(path["attention"]) in (0, 2)
        assert all(row < length and key < length for row, key in path["cells"])


@given(st.lists(st.integers(), unique=True).map(sorted), st.integers(1, 19))
def test_checkpoints_are_spread_to_the_last(values, count):
    found = explorer.spread(values, count)
    assert len(found) == min(count, len(values)) and found == sorted({*found}) and {*found} <= {*values}
    assert found[-1:] == values[-1:]


# A planted circuit: one head reads the token before in layer 1, another answers from it in layer 4 of six.


def planted(**more):
    def path(layer, head, query, words, rule, carries, **own):
        target = {"words": words, "every": words.startswith("all "), "rule": rule, "share": 1.0}
        told = {
            "layer": layer,
            "head": head,
            "query": query,
            "rule": rule,
            "targets": [target],
            "cells": [[1, 0]],
        }
        told |= {
            "attention": [0.1, 0.9],
            "mean_attention": 0.9,
            "needed_for": [],
            "carries": carries,
            "uses": [],
        }
        return {**told, "removed": {"rules": 0.7, "clean": 0.5, "recomputed": None}, **own}

    use = {"layer": 4, "head": 0, "part": "V", "rows": "query", "rise": 0.6}
    paths = [
        path(1, 0, "second 1", "first 1", "previous", ["x_1"], uses=[use]),
        path(4, 0, "query", "second 1", "hop_1", ["x_1", "x_2"]),
        path(1, 1, "query", "all first", "same_symbol", []),
        path(2, 0, "query", "", "learned", []),
    ]
    places = [("first 1", "A", 0), ("second 1", "<B>", 0), ("query", "A", 0)]
    return {
        "verdict": "read", "learned": ["step_1"], "threshold": 0.3, "layers": 6, "heads": 2, "random": [0.9, 1.0],
        "loss": {"full": 0.1, "rules": 0.2, "complement": 1.1}, "columns": ["first 1", "second 1", "query"],
        "tokens": [dict(zip(("role", "label", "chain"), each, strict=True)) for each in places], "readout": ["query"],
        "paths": paths, "steps": [0, 7], "mapped": ["1.0", "4.0"], "curves": {"x_1": [1.0, 0.1]}, **more,
    }  # fmt: skip


@needs_node
def test_the_picture_of_a_circuit_has_its_reads_and_folds_idle_layers():
    body = """const p = globalThis.hopscopePicture; const [line, places] = p.timeline(input, input.curves);
        return { graph: p.graph(input, 1), mini: p.mini(input, p.used(input)), line, places, drawn: p.drawn(input),
            said: input.paths.map(each => p.stepWords(input, each)) };"""
    found = evaluate("picture.js", body, planted())
    assert found["drawn"] == [0, 1, 2]  # what the last one reads has no name
    graph = found["graph"]
    for at in found["drawn"]:
        assert graph.count(f'data-path="{at}"') == 2
    assert all(
        words in graph for words in (">layer 0<", ">layer 1<", ">layers 2–3<", ">layer 4<", ">layer 5<")
    )
    assert graph.count(">no read<") == 3 and "&lt;B&gt;" in graph and "<B>" not in graph
    assert found["said"][0] == "Layer 1, head 1.0: second 1 (here <B>) reads first 1 (here A)."
    assert len(found["places"]) == 2 and found["places"][0] < found["places"][1]
    assert "NaN" not in json.dumps(found) and "undefined" not in json.dumps(found)
    again = evaluate("picture.js", body, planted())
    assert again == found


def test_a_page_shows_the_models_and_circuits_of_its_run(make):
    run = make_live(make)
    made = page(run)
    assert 'class="explorer"' in made and 'class="circuits"' in made
    assert "Try the model" in made and "Play its circuit" in made
    shown = json.loads(made.split('class="explorer-data">')[1].split("</script>")[0])
    assert [len(each["checkpoints"]) for each in shown] == [2, 2]
    assert {"patterns", "predictions"} <= {*shown[0]["checkpoints"][0]}
    circuit = json.loads(made.split('class="circuit-data">')[1].split("</script>")[0])
    assert "0.100" in circuit[0]["words"] and circuit[0]["name"] == "2 layers, seed 11"


def make_live(make, **more):
    """A run with patterns of two members at two checkpoints, and a planted circuit of one."""
    kept = explorer.explored(ensemble("post, relu, 2 heads"), TASKS["tokens"])
    told = {"about": explorer._json(planted()), "maps": np.full((2, 2, 3, 3), 128, np.uint8)}
    files = {"explorer": (kept, [(0, 0), (0, 7), (3, 0), (3, 7)]), "circuit": (told, [(0, 7)])}
    arrays, found = {}, rows()
    for name, (content, places) in files.items():
        file = f"units/u2/{name}.safetensors"
        named = {f"{name}-{member}.{key}": each for member, _ in places for key, each in content.items()}
        arrays[file] = {key: np.ascontiguousarray(each) for key, each in named.items()}
        own = {"metric": name, "measure": name, "value": 1.0, "file": file}
        found += [{**own, "member": member, "step": step} for member, step in places]
    return make(rows=found, arrays=arrays, **more)


def test_a_checkpoint_whose_numbers_overflowed_is_left_out(make):
    run = make_live(make)
    table = Evidence.read(run)
    shown = explorer.models(run, table)
    assert [len(each["checkpoints"]) for each in shown] == [2, 2]
    kept = table.arrays

    def overflowed(file):
        return {key: each * np.float32(np.inf) if key.endswith("predictions") else each
                for key, each in kept(file).items()}  # fmt: skip

    table.arrays = overflowed
    assert explorer.models(run, table) == []
