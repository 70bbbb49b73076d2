"""The exported folder in the hands of others: transformers' logits, tokenizer and generation, and Inspect."""

import pytest
import torch
from inspect_ai.model import get_model
from tests.oracles.equations import reference_text
from transformers import AutoModelForCausalLM, AutoTokenizer

from hopscope.language.gpt2_folder import write_folder
from hopscope.language.questions.answers import rows
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.text.split import held_out_mappings

from .own import ask, random_member

TASK = EquationsTask(EquationsConfig(chains=3, depths=(1, 2)))


@pytest.fixture(scope="module", params=[0.0, 2.0], ids=["attention only", "with MLP"])
def exported(request, tmp_path_factory):
    member = random_member(TASK, mlp_ratio=request.param)
    folder = tmp_path_factory.mktemp("exported") / "model"
    write_folder(member, TASK.vocabulary, folder, {"step": 3})
    return member, folder


def test_logits_are_those_of_transformers(exported):
    module, folder = exported
    inputs = TASK.sample(torch.tensor([1]), "train", 0, 11).inputs[0]
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(inputs).logits, module(inputs), rtol=0.0, atol=1e-4)


def test_the_tokenizer_reads_what_we_read_and_asks_the_bare_prompt(exported):
    tokenizer = AutoTokenizer.from_pretrained(exported[1])
    prompt = reference_text(TASK.config, 3, "train", 0, 1)["prompt"]
    assert tokenizer(prompt)["input_ids"] == TASK.read(prompt).tolist()
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    assert chat == prompt
    offsets = tokenizer(prompt, return_offsets_mapping=True)["offset_mapping"]
    assert "".join(prompt[start:end] for start, end in offsets) == "".join(prompt.split())


def test_our_answers_are_those_of_transformers(exported):
    theirs, tokenizer = (
        AutoModelForCausalLM.from_pretrained(exported[1]),
        AutoTokenizer.from_pretrained(exported[1]),
    )
    ours = get_model(f"hopscope/{exported[1]}", memoize=False).api
    for index in range(13):
        prompt = reference_text(TASK.config, 3, "train", 0, index)["prompt"]
        given = tokenizer(prompt, return_tensors="pt")
        said = theirs.generate(**given, max_new_tokens=3, do_sample=False)[0, given["input_ids"].shape[1] :]
        assert ours.answer(prompt, 0.0, 0, 3) == tokenizer.decode(said, skip_special_tokens=True).strip()


def test_it_is_asked_held_out_questions_through_inspect(exported, tmp_path):
    (log,) = ask(
        [f"hopscope/{exported[1]}"], ("equations",), log_dir=tmp_path, depths=(1, 2), chains=3, count=5,
        held_out=0.2, split_seed=0,
    )  # fmt: skip
    found = rows(log)
    assert [row.depth for row in found] == [1] * 5 + [2] * 5
    (held,) = held_out_mappings(3, 0.2, 0)
    for sample in log.samples:
        *lines, question = sample.input.split("\n")
        known = dict(line.split(" = ") for line in lines)
        asked = question.removeprefix("What is the value of ").split("?")[0]
        last = sorted(known)[-3:]
        while asked in known:
            asked = known[asked]
        first = question.removeprefix("What is the value of ").split("?")[0]
        assert int(asked) == held[last.index(first)]
