"""Many prompts at once, continued from their keys and values, against one prompt at a time and nothing kept."""

import os
from importlib.util import find_spec

import pytest
import torch

from hopscope.errors import UserError
from hopscope.language.choices import beginnings, leaves
from hopscope.language.decoder import Decoder

from .heads.conftest import require

PROMPTS = [
    (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8),
    (3, 1, 4, 1, 5, 9, 2, 6, 5, 7),
    (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2),
]


@pytest.fixture(scope="module", params=["gpt2", "llama", "gemma3"])
def model(request):
    require(find_spec("transformers") is not None, os.environ)
    from transformers import (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    common = {
        "vocab_size": 53,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "initializer_range": 0.5,
    }
    rotary = {
        **common, "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1,
        "intermediate_size": 7, "head_dim": 14, "max_position_embeddings": 97,
    }  # fmt: skip
    sliding = {
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(11)
        if request.param == "gpt2":
            made = GPT2LMHeadModel(GPT2Config(**common, n_embd=33, n_layer=2, n_head=3, n_positions=97))
        elif request.param == "llama":
            made = LlamaForCausalLM(LlamaConfig(**rotary))
        else:
            made = Gemma3ForCausalLM(Gemma3TextConfig(**rotary, **sliding))
    return made.eval()


def logits_after(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def test_what_follows_is_what_the_whole_text_says(model):
    decoder = Decoder("tiny", model)
    read = decoder.read(PROMPTS)
    assert [prompt.length for prompt in read] == [len(tokens) for tokens in PROMPTS]
    seen = [[] for _ in PROMPTS]

    def draw(row, place, logits):
        seen[row].append(logits)
        return None if (row, place) == (1, 2) else int(logits.argmax())

    decoder.go_on(read, draw, 5)
    assert [len(each) for each in seen] == [5, 3, 5]
    for tokens, steps in zip(PROMPTS, seen, strict=True):
        said = list(tokens)
        for logits in steps:
            assert logits.numpy() == pytest.approx(logits_after(model, said)[-1].numpy(), abs=1e-4)
            said.append(int(logits.argmax()))


def test_what_has_ended_is_computed_no_further(model, monkeypatch):
    decoder, passes = Decoder("tiny", model), []
    run = Decoder._run
    read = decoder.read(PROMPTS)
    monkeypatch.setattr(
        Decoder,
        "_run",
        lambda self, ids, *more, **named: passes.append(len(ids)) or run(self, ids, *more, **named),
    )
    decoder.go_on(read, lambda row, place, logits: None if place == 2 - row else 3, 5)
    assert passes == [2, 1]  # the last row ends at once, the one before it next


def test_a_prompt_is_read_once_and_a_common_beginning_too(model, monkeypatch):
    decoder, passes = Decoder("tiny", model), []
    run = Decoder._run

    def counted(self, ids, past, keep, **more):
        passes.append(tuple(ids.shape))
        return run(self, ids, past, keep, **more)

    monkeypatch.setattr(Decoder, "_run", counted)
    first = decoder.read(PROMPTS)
    assert passes == [(1, 9), (3, 8)]
    again = decoder.read([PROMPTS[2], PROMPTS[0]])
    assert len(passes) == 2 and again[0] is first[2] and again[1] is first[0]


def test_scores_are_sums_of_log_probabilities(model):
    decoder = Decoder("tiny", model)
    answers = [(7,), (8, 3), (8, 5, 6), (8, 5, 4, 2)]
    found = decoder.scores(decoder.read(PROMPTS), [answers, answers[:2], answers])
    for tokens, of, scores in zip(PROMPTS, (answers, answers[:2], answers), found, strict=True):
        for answer, score in zip(of, scores, strict=True):
            told = logits_after(model, tokens + answer).log_softmax(-1)
            places = range(len(tokens) - 1, len(tokens) + len(answer) - 1)
            expected = sum(float(told[place, token]) for place, token in zip(places, answer, strict=True))
            assert score == pytest.approx(expected, abs=1e-4)


def test_a_prompt_longer_than_the_context(model):
    with pytest.raises(
        UserError, match="tiny: expected at most 97 tokens, found a prompt of 98; ask shorter"
    ):
        Decoder("tiny", model).read([(1,) * 98])


def test_a_model_without_keys_and_values():
    require(find_spec("transformers") is not None, os.environ)
    from transformers import MambaConfig, MambaForCausalLM

    mamba = MambaForCausalLM(MambaConfig(vocab_size=11, hidden_size=12, num_hidden_layers=1, state_size=3))
    with pytest.raises(UserError, match="expected a decoder with a key-value cache, found: ") as raised:
        Decoder("mamba", mamba).read([(1, 2, 3)])
    assert "\n" not in str(raised.value)


def test_beginnings_and_what_must_be_read_for_them():
    assert beginnings([(5, 1), (5, 2, 7), (6, 3)]) == [(5, 1), (5, 2), (6,)]
    assert beginnings([(5,), (5, 2)]) is None
    assert leaves([(5, 1), (5, 2), (6,)]) == [(5,)]
    assert leaves([(5,), (6,)]) == [()]
    assert leaves([(5, 1, 2), (5, 1, 3), (6, 4), (6, 5)]) == [(5, 1), (6,)]
