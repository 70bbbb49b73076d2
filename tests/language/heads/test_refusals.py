"""What cannot be scored is refused in one clear line."""

import os
import socket
import subprocess
import sys
import time

import pytest

from hopscope.errors import UserError
from hopscope.tasks.text import TextConfig, question


def line(error):
    text = str(error.value)
    assert "\n" not in text
    return text


def test_folders_that_hold_no_model(planted, tmp_path):
    from hopscope.language.heads.model import load

    for name in (tmp_path, tmp_path / "nowhere", "./nowhere"):
        with pytest.raises(UserError) as error:
            load(str(name))
        assert "config.json" in line(error)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError) as error:
        load(str(tmp_path))
    assert "causal language model" in line(error)


def test_no_network(planted, monkeypatch):
    from hopscope.language.heads.model import load

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as error:
        load("hopscope-tests/not-there")
    assert "check the name and the network" in line(error)


def test_a_hub_that_cannot_be_reached_is_asked_once_and_said_in_one_line(planted, tmp_path):
    """In a process of its own: the hub's address is read when its library is imported."""
    words = ["heads", "--model", "hopscope-tests/not-there", "--formulation", "equations"]
    # A port on which nobody listens.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    known = {**os.environ, "HF_ENDPOINT": nobody, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "hopscope", *words], capture_output=True, text=True, check=False, env=known
    )
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("hopscope: hopscope-tests/not-there: expected a causal language model")
    assert "found none in the cache, and of the hub: " in said and "check the name and the network" in said
    assert time.monotonic() - began < 60


def test_the_extra_is_named(monkeypatch):
    from hopscope.language.heads import model as heads_model

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        heads_model.load("gpt2")
    assert "pip install 'hopscope[hf]'" in line(error)


def test_models_without_causal_attention(planted):
    from transformers import BertConfig, BertLMHeadModel, MambaConfig, MambaForCausalLM

    from hopscope.language.heads.model import attentive

    small = {"vocab_size": 11, "hidden_size": 12, "num_hidden_layers": 1}
    mamba = MambaForCausalLM(MambaConfig(**small, state_size=3))
    with pytest.raises(UserError, match="attention weights in eager mode"):
        attentive("mamba", mamba, None)
    bert = BertLMHeadModel(
        BertConfig(**small, num_attention_heads=3, intermediate_size=5, attn_implementation="eager")
    )
    with pytest.raises(UserError, match="causal attention, found one that sees later tokens"):
        attentive("bert", bert, None)


def test_a_prompt_longer_than_the_context(planted):
    from hopscope.language.heads.model import attentive, batches

    model = attentive("planted", planted.llama(), planted.tokenizer())
    with pytest.raises(UserError, match="expected at most 211 tokens, found a prompt of 212"):
        list(batches(model, [[3] * 212]))


def asked(**config):
    return question(TextConfig(formulation="equations", depth=1, **config), 0, 0)


def test_mentions_that_tokens_do_not_tell(planted):
    from hopscope.language.heads.tokens import Reader

    words = [word for word in planted.VOCABULARY if word not in ("a", "b", "c", "d")]
    with pytest.raises(UserError) as error:
        Reader(planted.tokenizer(words=tuple(words))).read(asked())
    assert "equations-d1-n4-s0-000000: mention" in line(error)
    assert "unknown" in line(error)


def whole_lines(vocabulary):
    """A tokenizer whose tokens are lines: two mentions share one."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token="<unk>"))
    inner.pre_tokenizer = Split(Regex(r"\n"), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


def test_mentions_that_share_a_token(planted):
    from hopscope.language.heads.tokens import Reader

    one = asked()
    with pytest.raises(UserError) as error:
        Reader(whole_lines(["<unk>", "\n", *one.prompt.split("\n")])).read(one)
    # The first letter's token reaches over the number, which is the next mention.
    assert "in whole tokens" in line(error)
    assert one.prompt.split("\n")[0] in line(error)


def test_tokenizers_that_cannot_be_used(planted):
    from hopscope.language.heads.tokens import Reader

    class Slow:
        is_fast = False

    with pytest.raises(UserError, match="fast"):
        Reader(Slow())
    with pytest.raises(UserError, match="chat template"):
        Reader(planted.tokenizer(), chat=True)


def test_a_chat_template_shifts_what_is_read(planted):
    from hopscope.language.heads.tokens import Reader

    template = "= = {% for m in messages %}{{ m['content'] }}{% endfor %} ? "
    bare = Reader(planted.tokenizer()).read(asked())
    chat = Reader(planted.tokenizer(template), chat=True).read(asked())
    assert len(chat.ids) == len(bare.ids) + 3
    assert chat.continuations == bare.continuations
    moved = {
        name: tuple((row + 2, tuple(target + 2 for target in targets)) for row, targets in pairs)
        for name, pairs in bare.reads.items()
        if not name.startswith("answer") and name != "facts:previous"  # the first token has got one before it
    }
    assert {name: chat.reads[name] for name in moved} == moved
    assert chat.reads["answer:query"][0][0] == len(chat.ids) - 1
    unlike = "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}"
    with pytest.raises(UserError, match="changes it"):
        Reader(planted.tokenizer(unlike), chat=True).read(asked())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"count": 1}, "count"),
        ({"depth": 0}, "depth: expected at least 1, found 0"),
        ({"depth": 1, "count": 5, "rank": "nose"}, "rank: expected any or one of"),
        ({"depth": 1, "count": 5, "top": (9,)}, "half of the model's 16 heads"),
        ({"depth": 1, "count": 5, "draws": 0}, "draws"),
        ({"passages": "both"}, "either a formulation or a passage"),
    ],
)
def test_numbers_out_of_range(planted, fields, words):
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score

    model = attentive("planted", planted.llama(), planted.tokenizer())
    with pytest.raises(UserError) as error:
        score(model, "equations", **fields)
    assert words in line(error)
