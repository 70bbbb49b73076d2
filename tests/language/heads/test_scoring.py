"""Planted heads are found in every layout, and taking them out costs what it must."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from hopscope.tasks.text import TextConfig, questions


def texts(model, count=5, **config):
    from hopscope.language.heads.tokens import Reader

    reader = Reader(model.tokenizer)
    return [reader.read(one) for one in questions(TextConfig(formulation="equations", **config), count, 3)]


def test_planted_heads_are_found_and_taken_out(planted, planted_model):
    from hopscope.language.heads.scoring import score

    found = score(planted_model, "equations", depth=1, count=64, top=(3,), draws=5, pretrained=True)
    assert (found["layers"], found["heads"]) == (planted.LAYERS, planted.HEADS)
    truth = {"facts:pair_mate": planted.PAIR, "answer:query": planted.POINTER, "answer:hop_1": planted.HOP}
    for name, (layer, head) in truth.items():
        scores = np.array(found["targets"][name]["scores"])
        assert scores[layer, head] > 0.99
        scores[layer, head] = found["targets"][name]["floor"]
        # All other heads read everything alike, but for the planted ones of other targets.
        for other in truth.values():
            scores[other] = found["targets"][name]["floor"]
        assert scores == pytest.approx(np.full(scores.shape, found["targets"][name]["floor"]), abs=1e-5)
        low, high = found["targets"][name]["interval"][layer][head]
        assert low <= found["targets"][name]["scores"][layer][head] + 1e-9 and high <= 1.0
    assert {(one["layer"], one["head"]) for one in found["top"][:3]} == set(truth.values())
    assert {one["target"] for one in found["top"][:3]} == set(truth)
    (row,) = found["ablation"]
    assert {tuple(head) for head in row["heads"]} == set(truth.values())
    assert (row["accuracy"], row["random"]["accuracy"], row["cost"]["random"]) == (1.0, 1.0, 0.0)
    assert row["cost"]["top"] > 55 and row["top"]["interval"][1] < 0.45
    assert row["cost"]["top"] == pytest.approx(100 * (1 - row["top"]["accuracy"]))
    assert row["margin"]["clean"] > 5 and row["margin"]["top"] < 0
    (claim,) = found["claims"]
    assert (claim["id"], claim["verdict"], claim["n"]) == ("S2", "reproduced", 64)


def test_each_planted_head_alone_is_needed_and_no_other(planted):
    from hopscope.language.heads.answers import METHODS, Ablation, choose
    from hopscope.language.heads.attention import measure
    from hopscope.language.heads.model import attentive

    model = attentive("planted", planted.llama(), planted.tokenizer())
    known, asked = texts(model, 24, depth=1, chains=3)[:12], texts(model, 24, depth=1, chains=3)[12:]
    _, outputs = measure(model, known, examples=3)
    assert choose(model, asked).correct.mean() == 1.0
    for method in METHODS:
        for head in (planted.PAIR, planted.POINTER, planted.HOP):
            without = choose(model, asked, Ablation(frozenset([head]), method, outputs))
            assert without.correct.mean() < 0.8, (method, head)
        others = frozenset((layer, head) for layer in range(2) for head in (0, 1, 4, 6, 7))
        assert choose(model, asked, Ablation(others, method, outputs)).correct.mean() == 1.0


def random_models():
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    common = {"vocab_size": 53, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 1}
    rotary = {
        **common, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
        "intermediate_size": 7, "head_dim": 14, "max_position_embeddings": 97,
    }  # fmt: skip
    sizes = {"n_embd": 33, "n_layer": 2, "n_head": 3, "n_positions": 97, "initializer_range": 0.5}
    yield GPT2LMHeadModel(GPT2Config(**common, **sizes))
    yield LlamaForCausalLM(LlamaConfig(**rotary, initializer_range=0.5))
    yield Qwen2ForCausalLM(Qwen2Config(**rotary, initializer_range=0.5))


@pytest.fixture(scope="module")
def random_ones(planted):
    from hopscope.language.heads.model import attentive

    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(7)
        return [attentive("random", model, planted.tokenizer()) for model in random_models()]


def mixed(model):
    """Prompts of different lengths, so that batches are filled up."""
    return [*texts(model, 3, depth=1, chains=2), *texts(model, 4, depth=2, chains=4)]


def test_attention_is_that_of_transformers(random_ones):
    """In padded batches with reduced layers, against one prompt at a time with everything kept."""
    from hopscope.language.heads.attention import measure

    for model in random_ones:
        asked = mixed(model)
        scores, outputs = measure(model, asked)
        expected: dict[str, list[np.ndarray]] = {}
        floors: dict[str, list[float]] = {}
        for text in asked:
            with torch.no_grad():
                kept = model.model(torch.tensor([text.ids]), output_attentions=True).attentions
            weights = torch.stack(kept)[:, 0].double().numpy()
            for name, pairs in text.reads.items():
                if pairs:
                    each = [weights[:, :, row, list(targets)].sum(-1) for row, targets in pairs]
                    expected.setdefault(name, []).append(np.mean(each, axis=0))
                    floors.setdefault(name, []).append(np.mean([len(t) / (row + 1) for row, t in pairs]))
        assert set(scores) == set(expected)
        for name, values in expected.items():
            assert scores[name].mean == pytest.approx(np.mean(values, axis=0), abs=1e-5)
            assert scores[name].floor == pytest.approx(np.mean(floors[name]))
            assert scores[name].questions == len(values)
            half = (scores[name].high - scores[name].low) / 2
            inside = (scores[name].low > 0) & (scores[name].high < 1)
            from scipy.stats import t

            true = t.ppf(0.975, len(values) - 1) * np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
            assert half[inside] == pytest.approx(true[inside], abs=1e-5)
        assert outputs.counts[0] == sum(len(text.ids) for text in asked)


def test_a_head_replaced_by_zero_is_a_head_without_output_weights(random_ones):
    from hopscope.language.heads.answers import Ablation, choose
    from hopscope.language.heads.attention import measure

    for model in random_ones:
        asked = mixed(model)
        _, outputs = measure(model, asked)
        found = choose(model, asked, Ablation(frozenset([(1, 2), (0, 1)]), "zero", outputs))
        clean = choose(model, asked)
        assert np.abs(found.margin - clean.margin).max() > 1e-3
        kept = [layer.projection.weight.detach().clone() for layer in model.layers]
        with torch.no_grad():
            for layer, head in ((1, 2), (0, 1)):
                one = model.layers[layer]
                rows = slice(head * one.head_dim, (head + 1) * one.head_dim)
                # Conv1D holds [in, out], Linear [out, in].
                weight = one.projection.weight
                (weight[rows] if type(one.projection).__name__ == "Conv1D" else weight[:, rows]).zero_()
            assert choose(model, asked).margin == pytest.approx(found.margin, abs=1e-4)
            for layer, weight in zip(model.layers, kept, strict=True):
                layer.projection.weight.copy_(weight)
        assert choose(model, asked).margin == pytest.approx(clean.margin, abs=1e-6)


def test_what_stands_in_a_heads_place_is_of_the_same_role(random_ones):
    from hopscope.language.heads.answers import EXAMPLES, Ablation, _instead
    from hopscope.language.heads.attention import measure
    from hopscope.language.heads.model import changed

    model = random_ones[1]
    asked = mixed(model)
    _, outputs = measure(model, asked, examples=EXAMPLES)
    seen: dict[str, list[torch.Tensor]] = {}
    for text in asked:
        layers = {}
        with changed(model, layers.__setitem__), torch.no_grad():
            model.model(torch.tensor([text.ids]))
        for role, out in zip(text.roles, layers[1][0], strict=True):
            seen.setdefault(role, []).append(out)
    every = torch.stack([out for found in seen.values() for out in found])
    assert torch.allclose(outputs.means(1)[0], every.mean(0), atol=1e-5)
    for role, found in seen.items():
        number = outputs.roles[role]
        assert torch.allclose(outputs.means(1)[number], torch.stack(found).mean(0), atol=1e-5)
        drawn = _instead(
            Ablation(frozenset(), "resample", outputs, 5), 1, torch.full((3, 2), number), [0, 1, 2]
        )
        gap = (drawn.flatten(0, 1)[:, None] - torch.stack(found)[None]).abs().amax(-1).amin(-1)
        assert gap.max() < 1e-5


def test_answers_of_several_tokens_are_compared_as_far_as_they_differ(random_ones):
    from hopscope.errors import UserError
    from hopscope.language.heads.answers import choose

    model = random_ones[0]
    asked = [replace(text, continuations=((5, 6, 7), (5, 6, 9), (8, 5)), right=1) for text in mixed(model)]

    def told(ids, tokens):
        total = 0.0
        for n, token in enumerate(tokens):
            with torch.no_grad():
                logits = model.model(torch.tensor([[*ids, *tokens[:n]]])).logits[0, -1]
            total += float(logits.log_softmax(-1)[token])
        return total

    expected = [
        told(text.ids, (5, 6, 9)) - max(told(text.ids, (5, 6, 7)), told(text.ids, (8,))) for text in asked
    ]
    assert choose(model, asked).margin == pytest.approx(np.array(expected), abs=1e-4)
    with pytest.raises(UserError, match="none of which begins another"):
        choose(model, [replace(asked[0], continuations=((5,), (5, 6)), right=0)])


def test_memory_holds_one_layer_of_one_batch(planted, random_ones, monkeypatch):
    """However many questions there are: at most the weights of the layer before are still there."""
    from hopscope.language.heads import attention as heads_attention

    model = replace(random_ones[2], floats=3 * random_ones[2].heads * 40**2)
    most: dict[int, int] = {}
    for count in (3, 30):
        alive: list[weakref.ref] = []
        largest = 0

        def reduced(weights, pairs, alive=alive, then=heads_attention._reduced):
            nonlocal largest
            alive.append(weakref.ref(weights))
            largest = max(largest, sum(one().numel() for one in alive if one() is not None))
            return then(weights, pairs)

        monkeypatch.setattr(heads_attention, "_reduced", reduced)
        heads_attention.measure(model, texts(model, count, depth=1, chains=4))
        monkeypatch.undo()
        most[count] = largest
    assert most[30] == most[3] > 0


def test_the_same_call_gives_the_same_numbers(planted):
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score

    model = attentive("planted", planted.qwen2(), planted.tokenizer())
    first, again = (
        score(
            model,
            "equations",
            depth=1,
            chains=3,
            count=9,
            top=(1, 2),
            draws=3,
            method="resample",
            rank="answer:hop_1",
        )
        for _ in range(2)
    )
    assert first == again
    assert first["ablation"][0]["heads"] == [list(planted.HOP)]
    assert [row["random"]["draws"] for row in first["ablation"]] == [3, 3]
    other = score(model, "equations", depth=1, chains=3, count=9, top=(1,), draws=3, seed=1)
    assert other["targets"] != first["targets"] or other["ablation"] != first["ablation"]


def test_cost_is_told_by_depth(planted):
    """The model reads one step: deeper questions are guessed, with all heads or without."""
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score

    model = attentive("planted", planted.gpt2(), planted.tokenizer())
    found = score(model, "equations", depth=2, count=20, top=(2,), draws=2)
    shallow, deep = found["ablation"]
    assert (shallow["depth"], shallow["accuracy"]) == (1, 1.0)
    assert deep["depth"] == 2 and deep["interval"][0] < deep["guess"]
    assert "answer:hop_2" in found["targets"]
