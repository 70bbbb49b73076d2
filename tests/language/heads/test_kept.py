"""Passes that are not made again: layers below an ablation, and what an earlier call has kept."""

import json

import numpy as np
import pytest
import torch

from hopscope.errors import UserError
from hopscope.tasks.text import TextConfig, questions


@pytest.fixture(scope="module")
def deep(planted):
    """An untrained Llama of five layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from hopscope.language.heads.model import attentive

    config = LlamaConfig(
        vocab_size=len(planted.VOCABULARY), hidden_size=30, num_hidden_layers=5, num_attention_heads=3,
        num_key_value_heads=1, intermediate_size=7, head_dim=14, max_position_embeddings=211, initializer_range=0.5,
        attn_implementation="eager",
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(13)
        return attentive("deep", LlamaForCausalLM(config), planted.tokenizer())


@pytest.fixture(scope="module")
def asked(deep):
    from hopscope.language.heads.attention import measure
    from hopscope.language.heads.tokens import Reader

    reader = Reader(deep.tokenizer)
    kinds = [TextConfig(formulation="equations", depth=depth, chains=3) for depth in (1, 2)]
    texts = [reader.read(one) for kind in kinds for one in questions(kind, 3, 0)]
    return texts, measure(deep, texts)[1]


def sets(outputs):
    from hopscope.language.heads.answers import Ablation

    heads = ([(0, 1)], [(2, 0), (4, 1)], [(4, 2)], [(1, 0), (1, 1), (1, 2)])
    return [None, *(Ablation(frozenset(each), "mean", outputs) for each in heads)]


def test_layers_below_an_ablation_are_run_once(deep, asked):
    from hopscope.language.heads.answers import choose_each

    texts, outputs = asked
    ran = []
    hooks = [
        one.projection.register_forward_hook(lambda *_, n=n: ran.append(n))
        for n, one in enumerate(deep.layers)
    ]
    found = choose_each(deep, texts, sets(outputs))
    for hook in hooks:
        hook.remove()
    # Whole, whole, from layer 2, from layer 4, from layer 1.
    assert ran == [*range(5), *range(5), 2, 3, 4, 4, 1, 2, 3, 4]
    from dataclasses import replace

    whole = choose_each(replace(deep, blocks=()), texts, sets(outputs))
    for some, all_ in zip(found, whole, strict=True):
        assert some.margin == pytest.approx(all_.margin, abs=1e-6)
    assert np.ptp([each.margin[0] for each in found]) > 1e-3


def test_a_killed_call_goes_on(deep, asked, tmp_path):
    from hopscope.language.heads.answers import Kept, choose_each

    texts, outputs = asked
    file = tmp_path / "heads" / "passes.jsonl"

    def killed(done, of):
        assert of == 5
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose_each(deep, texts, sets(outputs), Kept(file), killed)
    assert len(file.read_text().splitlines()) == 3
    with file.open("a") as lines:
        lines.write('["half a li')
    ran = []
    hook = deep.layers[4].projection.register_forward_hook(lambda *_: ran.append(4))
    kept = Kept(file)
    again = choose_each(deep, texts, sets(outputs), kept)
    hook.remove()
    assert len(ran) == 3  # what is clean once more, and the two that were not made
    for one, other in zip(again, choose_each(deep, texts, sets(outputs)), strict=True):
        assert one.margin == pytest.approx(other.margin, abs=1e-6)
    kept.done()
    assert not file.exists()


def test_a_score_leaves_nothing_behind_and_says_how_long_it_takes(planted, tmp_path):
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score

    said = []
    model = attentive("planted", planted.gpt2(), planted.tokenizer())
    found = score(
        model, "equations", depth=1, chains=3, count=5, top=(1,), draws=2, keep=tmp_path, progress=said.append
    )
    assert not list(tmp_path.iterdir())
    assert said[-1] == "without heads, depth 1 of 1: 5 of 5 passes, about 1 min left"
    cost = found["ablation"][0]["cost"]
    assert cost["layers"] >= cost["top"] - 1e-9 and len(cost["layers_interval"]) == 2
    json.dumps(found)


def test_a_place_that_cannot_be_written_is_said(deep, asked, tmp_path):
    from hopscope.language.heads.answers import Kept, choose_each

    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="expected a file that can be written, found: "):
        choose_each(deep, asked[0], [None], Kept(tmp_path / "file" / "passes.jsonl"))
