"""Planted heads are found and needed, attention is that of transformers, whatever is shared; what was found is kept."""

import json
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hopscope.errors import UserError
from hopscope.language.questions import Questions

transformers = pytest.importorskip("transformers")

from hopscope.language import heads  # noqa: E402
from hopscope.language.heads import Scores, attention, attentive, margins, matched, ranked, read, score  # noqa: E402

from . import planted  # noqa: E402

pytestmark = pytest.mark.extras
EQUATIONS = Questions(formulation="equations", depth=1, count=5, seed=3)


@pytest.fixture(scope="module")
def built():
    return attentive("planted", planted.llama(), planted.tokenizer())


def texts_of(model, *several):
    return [read(model, kind, one) for kind in several for one in kind.drawn()]


def test_planted_heads_are_found_and_no_other_is_needed(built):
    found = score(built, EQUATIONS.model_copy(update={"count": 24}), top=(3,), draws=5)
    truth = {"facts:pair_mate": planted.PAIR, "answer:query": planted.POINTER, "answer:hop_1": planted.HOP}
    for name, head in truth.items():
        target = found["targets"][name]
        mean = np.array(target["mean"])
        assert (
            mean[head] > 0.99
            and target["low"][head[0]][head[1]] <= mean[head] <= target["high"][head[0]][head[1]] + 1e-9
        )
        for other in truth.values():
            mean[other] = target["floor"]
        assert mean == pytest.approx(np.full(mean.shape, target["floor"]), abs=1e-5)
    assert {*found["top"][:3]} == {*truth.values()}
    (cost,) = found["ablation"]
    assert cost["all"][0] == cost["random"][0] == 1.0 and cost["random_cost"] == [0.0, 0.0, 0.0]
    assert (
        cost["top"][0] < 0.6
        and cost["top_cost"][1] > 0.2
        and cost["layers_cost"][0] >= cost["top_cost"][0] - 1e-9
    )
    assert cost["margin"]["all"] > 5 and cost["margin"]["top"] < 0 and cost["guess"] == 0.25
    json.dumps(found)


@pytest.mark.parametrize("method", ["mean", "zero"])
def test_each_planted_head_alone_is_needed(built, method):
    own = EQUATIONS.model_copy(update={"count": 12, "chains": 3})
    found = attention(built, texts_of(built, own))[1]
    others = frozenset((layer, head) for layer in range(2) for head in (0, 1, 4, 6, 7))
    sets, right = (
        [frozenset(), others, *(frozenset([head]) for head in (planted.PAIR, planted.POINTER, planted.HOP))],
        [],
    )
    for text in texts_of(built, own.model_copy(update={"start": 12})):
        instead = torch.stack([found.get(role, found[""]) for role in text.roles]) * (method == "mean")
        right.append(np.array(margins(built, text, sets, instead)) > 0)
    shares = np.mean(right, 0)
    assert shares[:2].tolist() == [1.0, 1.0] and shares[2:].max() < 0.8


def random_models():
    config = {**planted.LARGE, "bos_token_id": 1, "eos_token_id": 1}
    rotary = {
        "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
        "intermediate_size": 7, "head_dim": 14, "initializer_range": 0.5,
    }  # fmt: skip
    gpt2 = {"n_embd": 33, "n_layer": 2, "n_head": 3, "n_positions": 211, "initializer_range": 0.5}
    yield transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**{**config, **gpt2, "max_position_embeddings": 211})
    )
    yield transformers.LlamaForCausalLM(transformers.LlamaConfig(**config, **rotary))
    yield transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**config, **rotary))


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["gpt2", "llama with shared keys", "qwen2"])
def random_one(request):
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(7)
        return attentive("random", [*random_models()][request.param], planted.tokenizer())


MIXED = [
    Questions(formulation="equations", depth=depth, chains=chains, count=3)
    for depth, chains in ((1, 2), (2, 4))
]


def test_attention_is_that_of_transformers(random_one):
    from scipy.stats import t as student

    asked = texts_of(random_one, *MIXED)
    scores, means = attention(random_one, asked)
    expected = {}
    for text in asked:
        with torch.no_grad():
            kept = random_one.model(torch.tensor([text.ids]), output_attentions=True).attentions
        weights = torch.stack(kept)[:, 0].double().numpy()
        for name, pairs in text.reads.items():
            each = [weights[:, :, row, targets].sum(-1) for row, targets in pairs.items()]
            floor = np.mean([len(targets) / (row + 1) for row, targets in pairs.items()])
            expected.setdefault(name, []).append((np.mean(each, 0), floor))
    assert {*scores} == {*expected}
    for name, several in expected.items():
        values, n = np.stack([value for value, _ in several]), len(several)
        assert scores[name].mean == pytest.approx(values.mean(0), abs=1e-5)
        assert scores[name].floor == pytest.approx(np.mean([floor for _, floor in several]))
        half = student.ppf(0.975, n - 1) * values.std(0, ddof=1) / np.sqrt(n)
        assert scores[name].high == pytest.approx(np.minimum(values.mean(0) + half, 1.0), abs=1e-4)
    assert {len(mean) for mean in means.values()} == {sum(random_one.widths)}


def test_a_head_replaced_by_zero_is_a_head_without_output_weights(random_one):
    text = texts_of(random_one, MIXED[1])[0]._replace(answers=[(5, 6, 7), (5, 6, 9), (8,)], right=1)
    gone, nothing = frozenset([(1, 2), (0, 1)]), torch.zeros(len(text.ids), sum(random_one.widths))
    clean, without, again = margins(random_one, text, [frozenset(), gone, frozenset()], nothing)
    assert clean == pytest.approx(again, abs=1e-5) and abs(clean - without) > 1e-3
    kept = [map_.weight.detach().clone() for map_ in random_one.layers]

    def slowly():
        totals = []
        for answer in text.answers:
            with torch.no_grad():
                told = random_one.model(torch.tensor([[*text.ids, *answer]])).logits[0].log_softmax(-1)
            totals.append(sum(float(told[len(text.ids) - 1 + n, token]) for n, token in enumerate(answer)))
        return totals[1] - max(totals[0], totals[2])

    assert slowly() == pytest.approx(clean, abs=1e-4)
    with torch.no_grad():
        for layer, head in gone:
            weight, size = random_one.layers[layer].weight, random_one.widths[layer] // random_one.heads
            part = slice(head * size, (head + 1) * size)
            # Conv1D holds [in, out], Linear [out, in].
            (weight[part] if "GPT2" in type(random_one.model).__name__ else weight[:, part]).zero_()
        assert slowly() == pytest.approx(without, abs=1e-4)
        for map_, weight in zip(random_one.layers, kept, strict=True):
            map_.weight.copy_(weight)


def test_cost_is_told_by_depth(built):
    """The model reads one step: deeper questions are guessed, with all heads or without."""
    found = score(built, EQUATIONS.model_copy(update={"depth": 2, "count": 12}), top=(2,), draws=2)
    shallow, deep = found["ablation"]
    assert (shallow["depth"], shallow["all"][0], deep["depth"]) == (1, 1.0, 2) and deep["all"][1] < deep[
        "guess"
    ]
    assert "answer:hop_2" in found["targets"]


def test_heads_are_ranked_by_what_they_pay_above_a_uniform_one():
    def scores(mean, floor):
        return Scores(*[np.array(mean)] * 3, floor, 7)

    found = {
        "query:previous": scores([[0.99, 0.1, 0.1], [0.1, 0.1, 0.1]], 0.1),
        "answer:hop_1": scores([[0.0, 0.5, 0.0], [0.0, 0.0, 0.7]], 0.0),
        "facts:pair_mate": scores([[0.5, 0.5, 0.5], [0.8, 0.5, 0.5]], 0.5),
    }
    # Where the name that is asked for is the last token but one, reading it is reading the token before.
    found["answer:query"] = found["query:previous"]
    assert ranked(found)[:3] == [(1, 2), (1, 0), (0, 1)]


def test_others_are_matched_layer_by_layer():
    top = [(0, 1), (2, 3), (2, 0)]
    sets = matched(top, (3, 7), 11, seed=5)
    assert len({*sets}) == 11 and matched(top, (3, 7), 11, seed=5) == sets != matched(top, (3, 7), 11, seed=6)
    for each in sets:
        assert not each & {*top} and sorted(layer for layer, _ in each) == [0, 2, 2]
    every = {frozenset(pair) for pair in combinations([(1, head) for head in range(2, 7)], 2)}
    assert {*matched([(1, 0), (1, 1)], (2, 7), 30, seed=0)} == every
    (near,) = matched([(1, 0), (1, 1), (1, 2)], (3, 3), 1, seed=0)[:1]
    assert len(near) == 3 and {layer for layer, _ in near} == {
        0
    }  # a full layer takes its others from the next
    counts = np.zeros(23)
    for each in matched([(0, head) for head in range(5)], (1, 23), 499, seed=3):
        counts[[head for _, head in each]] += 1
    expected = 499 * 5 / 18
    assert not counts[:5].any() and np.abs(counts[5:] - expected).max() < 5 * np.sqrt(expected)


def test_what_cannot_be_scored_is_refused_in_one_line(built):
    small = {"vocab_size": 11, "hidden_size": 12, "num_hidden_layers": 1}
    mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**small, state_size=3))
    with pytest.raises(UserError, match=r"mamba: expected attention with an .* found Mamba"):
        attentive("mamba", mamba, built.tokenizer)
    with pytest.raises(UserError, match="a fast tokenizer"):
        attentive("slow", built.model, SimpleNamespace(is_fast=False))
    sdpa = attentive("sdpa", planted.llama(), built.tokenizer)
    sdpa.model.set_attn_implementation("sdpa")
    with pytest.raises(UserError, match="sdpa: expected attention weights in eager mode"):
        attention(sdpa, texts_of(sdpa, EQUATIONS))
    with pytest.raises(
        UserError, match=r"planted: expected at most 211 tokens, found 2..; ask shorter questions"
    ):
        score(built, EQUATIONS.model_copy(update={"repeats": 7}))
    with pytest.raises(UserError, match=r"top: expected 1 to 8, half of the .* found \[9\]"):
        score(built, EQUATIONS, top=(9,))
    with pytest.raises(UserError, match="draws: expected at least 1, found 0"):
        score(built, EQUATIONS, draws=0)


def test_questions_of_lesser_depths_begin_at_their_first(monkeypatch):
    asked = Questions(formulation="equations", depth=2, chains=2, start=10, count=5)
    lesser, own = heads._tests(asked)
    assert (lesser.depth, lesser.start, len([*lesser.drawn()])) == (1, 0, 5) and own.start == 15
    said = []
    with pytest.raises(UserError, match="count: expected at most"):
        model = SimpleNamespace(layers=[0, 0], heads=7)
        score(model, asked.model_copy(update={"depth": 1, "start": 0}), say=said.append)
    assert said == []  # before any work


def test_mentions_that_tokens_do_not_tell(built):
    (one, *_) = EQUATIONS.drawn()
    words = tuple(word for word in planted.VOCABULARY if word not in "abcd")
    with pytest.raises(UserError, match=f"{one.id}: expected '.' .character 0. in whole, known tokens"):
        read(built._replace(tokenizer=planted.tokenizer(vocabulary=words)), EQUATIONS, one)
    lines = planted.tokenizer(vocabulary=("<unk>", *one.prompt.replace(" ", "").split("\n")), split=r"\n")
    with pytest.raises(UserError, match="use another model or formulation"):
        read(built._replace(tokenizer=lines), EQUATIONS, one)


def test_repeats_are_read_in_all_tellings(built):
    kind = EQUATIONS.model_copy(update={"repeats": 3, "measure": "choice"})
    for one in kind.drawn():
        text = read(built, kind, one)
        ((row, targets),) = text.reads["answer:hop_1"].items()
        assert row == len(text.ids) - 1 and len(targets) == 3
        assert {text.ids[n] for n in targets} == {planted.VOCABULARY.index(one.answer)}
        assert all(len(targets) == 3 for targets in text.reads["facts:pair_mate"].values())
        assert len({role.split(",")[0] for role in text.roles if "step 1" in role}) == 3


def test_of_a_model_of_images_and_texts_the_heads_for_texts_are_taken():
    text = {"vocab_size": len(planted.VOCABULARY), "hidden_size": 12, "intermediate_size": 5, "num_hidden_layers": 3,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6}  # fmt: skip
    vision = {"hidden_size": 14, "intermediate_size": 7, "num_hidden_layers": 5, "num_attention_heads": 2,
              "image_size": 8, "patch_size": 4}  # fmt: skip
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = transformers.Gemma3ForConditionalGeneration._from_config(config, attn_implementation="eager")
    found = attentive("gemma", model, planted.tokenizer())
    assert len(found.layers) == 3 and found.widths == [12] * 3
    (asked,) = texts_of(found, EQUATIONS.model_copy(update={"count": 1}))
    nothing = torch.zeros(len(asked.ids), sum(found.widths))
    whole, without = margins(found, asked, [frozenset(), frozenset([(0, 0), (0, 1)])], nothing)
    assert whole != without
