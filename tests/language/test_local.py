"""Models of this machine, through Inspect's own provider: sampled answers, choices, contexts; and what is no model."""

import importlib.util
import math
import socket
import subprocess
import sys
from collections import Counter

import pytest
import torch
from scipy.stats import binomtest

from hopscope.errors import UserError
from hopscope.language.answers import rows
from hopscope.language.questions import kinds
from hopscope.language.text import Equations
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer

pytest.importorskip("transformers")
pytest.importorskip("inspect_ai")

from inspect_ai import eval

from hopscope.language import local
from hopscope.language.evaluate import TASKS, ask
from hopscope.language.local import beginnings, continuations, encoded, export, load, log_probabilities

pytestmark = pytest.mark.extras
TASK = Equations(chains=3, depths=(1, 2), repeated=False)
SAID = {"0": 0.5, "1": 0.25, "a": 0.15, "=": 0.1}


def build(folder, answers=SAID):
    """A model of ours that says each word with its probability, whatever it has read."""
    shape, size = TASK.shape(), len(TASK.vocabulary)
    fields = {"layers": 1, "heads": 3, "head_dim": 11, "width": 33, "mlp_ratio": 0.0}
    sizes = {"length": shape.positions, "input_size": size, "output_size": size}
    model = Transformer.initial(TransformerConfig(**fields, **sizes), 17)
    weights = model.weights()
    for weight in weights.values():
        weight.zero_()
    weights["readout.weight"].copy_(torch.eye(33, size))
    weights["final_norm.bias"][:size] = -60.0
    for word, share in answers.items():
        weights["final_norm.bias"][TASK.vocabulary.index(word)] = math.log(share)
    export(model, TASK.vocabulary, folder)
    return f"hf/{folder}"


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return build(tmp_path_factory.mktemp("known"))


def test_a_model_that_keeps_nothing_of_what_it_read_is_refused():
    import transformers

    sizes = {"vocab_size": 11, "n_positions": 17, "n_embd": 12, "n_layer": 1, "n_head": 3}
    model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes)).eval()
    assert log_probabilities(model, (1, 2, 3), [(5,), (6,)]).shape == (2,)
    with pytest.raises(UserError, match="OpenAIGPTLMHeadModel: expected a model that keeps what it has read"):
        log_probabilities(model, (1, 2, 3), [(5, 7), (6,)])


def test_a_model_of_ours_answers_with_its_own_probabilities(known, tmp_path):
    asked = kinds(["equations"], [1], 3, count=61)
    found = ask([known], asked, tmp_path, attempts=1, max_tokens=1, max_connections=61)
    said = Counter(text for one in found for text in one.said)
    for word, share in SAID.items():
        low, high = binomtest(said[word], 61).proportion_ci(0.9999)
        assert low < share < high, word
    assert {one.correct for one in found} == {True, False, None}
    greedy = ask([known], kinds(["equations"], [1], 3, count=5), tmp_path, temperature=0, max_tokens=1)
    assert {tuple(one.said) for one in greedy} == {("0",)}
    # Inspect calls an absolute folder hf//…; readers see one slash.
    assert known.startswith("hf//") and {one.model for one in found} == {known.replace("//", "/")}


def test_inspect_s_own_command_may_ask_for_temperature_0(known, tmp_path):
    how = {"display": "none", "log_dir": str(tmp_path), "ctl_server": False, "log_realtime": False}
    asked = TASKS["equations"](1, chains=3, count=5)
    (log,) = eval(asked, model=known, temperature=0, max_tokens=1, **how)
    assert log.status == "success" and {one.output.completion for one in log.samples} == {"0"}


def test_the_likeliest_answer_is_chosen_and_a_kind_too_long_is_not_run(known, tmp_path):
    said = []
    several = kinds(["equations"], [1, 2], 3, count=7, measure="choice")
    long = kinds(["equations"], [2], 3, count=5, repeats=2)
    found = ask([known], [*several, *long], tmp_path, say=said.append)
    assert {one.said[-1] for one in found[:14]} == {"0"} and {one.likeliest for one in found[:14]} == {"0"}
    assert [one.too_long for one in found[14:]] == [True] * 5 and "5 of 5 questions are longer" in said[-1]
    values = {(row["metric"], row["part"][-1]): row["value"] for row in rows(found[:14])}
    assert values["acceptance", "1"] == values["acceptance", "2"] == 1.0 and values[
        "guess", "1"
    ] == pytest.approx(1 / 3)
    other = build(tmp_path / "other", {"a": 0.9, "1": 0.06, "0": 0.04})
    found = ask([other], several[:1], tmp_path / "logs")
    assert {(one.said[-1], one.likeliest) for one in found} == {("1", "a")}


def test_words_that_a_model_does_not_know_are_told(known, tmp_path):
    for how in ({"measure": "choice"}, {}):
        with pytest.raises(UserError, match="use another model or formulation") as raised:
            ask([known], kinds(["lives_with"], [1], 3, count=2, **how), tmp_path)
        assert "\n" not in str(raised.value) and "server" not in str(raised.value)
    (tmp_path / "bare").mkdir()
    bare = build(tmp_path / "bare")
    (tmp_path / "bare" / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="without a chat template; let the model choose instead"):
        ask([bare], kinds(["equations"], [1], 3, count=2), tmp_path / "logs")


def test_log_probabilities_are_those_of_whole_texts(known):
    model, tokenizer = load(known.removeprefix("hf/"))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)))
    (one,) = kinds(["equations"], [1], 3, count=1)
    (question,) = one.drawn()
    ids, spans = encoded(tokenizer, question.prompt)
    assert [question.prompt[start:end] for start, end in spans[:3]] == question.prompt.split()[:3]
    answers = [
        *continuations(tokenizer, question.prompt, question.acceptable),
        (3, 4, 5),
        (3, 4, 6, 7),
        (7, 8),
    ]
    found = log_probabilities(model, ids, answers)
    for place, answer in enumerate(answers):
        with torch.no_grad():
            told = model(torch.tensor([[*ids, *answer]])).logits[0].log_softmax(-1)
        total = sum(float(told[len(ids) - 1 + n, token]) for n, token in enumerate(answer))
        assert float(found[place]) == pytest.approx(total, abs=1e-4)
    assert continuations(tokenizer, "a =", ["0", "zebra"]) is None


def test_answers_are_told_apart_as_early_as_they_can_be():
    assert beginnings([(5, 6, 7), (5, 6, 9), (8, 5)]) == [(5, 6, 7), (5, 6, 9), (8,)]
    assert beginnings([(5,), (5, 6)]) is None


def test_a_gguf_file_is_expanded_once(known, tmp_path, monkeypatch):
    gguf = pytest.importorskip("gguf")
    monkeypatch.setattr(local, "CACHE", tmp_path / "cache")
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"no such thing")
    with pytest.raises(UserError, match=r"broken\.gguf: expected a causal language model") as raised:
        load(str(file))
    assert "\n" not in str(raised.value) and not [*(tmp_path / "cache").glob("*/config.json")]
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "qwen2")
    sizes = {
        "block_count": 1, "context_length": 31, "embedding_length": 8, "feed_forward_length": 6, "head_count": 2,
        "head_count_kv": 2, "vocab_size": 4,
    }  # fmt: skip
    for name, value in sizes.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", "<|endoftext|>"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(3)
    weights = {"token_embd": (4, 8), "output": (4, 8), "output_norm": (8,)}
    inside = {f"attn_{name}": (8, 8) for name in ("q", "k", "v", "output")} | {
        "attn_norm": (8,),
        "ffn_norm": (8,),
    }
    inside |= {"ffn_gate": (6, 8), "ffn_up": (6, 8), "ffn_down": (8, 6)}
    for name, shape in (weights | {f"blk.0.{each}": shape for each, shape in inside.items()}).items():
        values = torch.randn(shape, generator=torch.Generator().manual_seed(3)).numpy()
        writer.add_tensor(f"{name}.weight", values)
    for name in "qkv":
        writer.add_tensor(f"blk.0.attn_{name}.bias", torch.zeros(8).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model, _ = load(str(tmp_path / "tiny.gguf"))
    (folder,) = (tmp_path / "cache").iterdir()
    again, _ = load(str(folder))
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])


def test_what_is_no_model_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for name in (tmp_path / "empty", tmp_path / "nowhere", "./nowhere", tmp_path / "no.gguf"):
        with pytest.raises(UserError, match="expected a causal language model with its tokenizer") as raised:
            load(str(name))
        assert "\n" not in str(raised.value)
    (tmp_path / "empty" / "config.json").write_text("{")
    with pytest.raises(UserError, match="expected a causal language model"):
        load(str(tmp_path / "empty"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    code = (
        "from hopscope.language.local import load\ntry: load('hopscope-tests/not-there')\n"
        "except Exception as error: print(error)"
    )
    known = {"HF_ENDPOINT": nobody, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=known, timeout=60
    )
    assert done.stdout.count("\n") == 1 and "check the name and the network" in done.stdout
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"expected the package transformers, found none; pip install 'hopscope\[hf\]'"
    ):
        load("gpt2")
