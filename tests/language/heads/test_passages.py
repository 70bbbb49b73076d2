"""Natural text whose facts are marked: the paper's llamas, and marks that are not there."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hopscope.errors import UserError
from hopscope.language.heads.passages import read_passages

LLAMA = Path(__file__).parents[3] / "docs" / "examples" / "llama.json"


def test_the_llamas():
    (question,) = read_passages(LLAMA)
    structure = question.structure
    assert (question.depth, question.answer) == (2, "herd")
    assert structure.symbols == (("crias", "llama", "herd"),)
    written = [
        (fact.step, [question.prompt[m.start : m.end] for m in (*fact.given, fact.found)], fact.found.symbol)
        for fact in structure.facts
    ]
    assert written == [(2, ["Llamas", "herd"], "herd"), (1, ["cria", "llama"], "llama")]
    # What step 2 is given is what step 1 has found, however it is written.
    assert [fact.given[0].symbol for fact in structure.facts] == ["llama", "crias"]
    assert question.prompt[structure.query[0].start :].startswith("Crias are typically")


def test_the_llamas_in_tokens(planted):
    from hopscope.language.heads.tokens import Reader

    (question,) = read_passages(LLAMA)
    words = ["Llamas", "llama", "cria", "Crias", "herd", "flock", "group", "pack", "alpaca"]
    vocabulary = dict.fromkeys(["<unk>", *words, *re.findall(r"\w+|[^\w\s]", question.prompt)])
    tokenizer = planted.tokenizer(words=tuple(vocabulary))
    text = Reader(tokenizer).read(question)
    tokens = tokenizer.convert_ids_to_tokens(list(text.ids))
    assert "<unk>" not in tokens

    def shown(name):
        return [(tokens[row], [tokens[n] for n in targets]) for row, targets in text.reads[name]]

    assert shown("query:same_symbol") == [("Crias", ["cria"])]
    assert shown("answer:query") == [("the", ["Crias"])]
    assert shown("answer:hop_1") == [("the", ["llama"])]
    assert shown("answer:hop_2") == [("the", ["herd"])]
    assert sorted(shown("facts:pair_mate")) == [("herd", ["Llamas"]), ("llama", ["cria"])]
    assert [tokenizer.decode(list(c)) for c in text.continuations] == ["herd", "flock", "group", "pack"]
    assert set(text.roles) == {"text"}
    assert [text.right, text.id] == [0, "llama-000000"]


def changed(path, **fields):
    data = json.loads(LLAMA.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps(data))
    return path


FACT = {"given": "Llamas", "found": "herd", "step": 1}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"query": "Yak"}, ["llama-000000, query", "'Yak' once", "found it 0 times"]),
        ({"query": "cria"}, ["found it 1 times"]),
        ({"query": "the"}, ["'the'", "occurrence"]),
        ({"query": [5, 5]}, ["expected characters within", "[5, 5]"]),
        ({"query": [0, 9999]}, ["[0, 9999]"]),
        ({"query": {"text": "herd", "occurrence": 2}}, ["occurrence 2 of 'herd'", "found 1"]),
        ({"facts": [{**FACT, "found": "barn"}]}, ["fact 1, found", "'barn'"]),
        ({"facts": [{**FACT, "step": 2}]}, ["steps 1, 2, …", "[2]"]),
        ({"facts": []}, ["facts"]),
        ({"answer": "barn"}, ["'barn' among them"]),
        ({"acceptable": ["herd"]}, ["acceptable"]),
        ({"colour": 1}, ["colour"]),
    ],
)
def test_marks_that_are_not_there(tmp_path, fields, words):
    path = changed(tmp_path / "llama.json", **fields)
    if fields == {"query": "cria"}:  # stands once as such: "Crias" has a capital
        assert read_passages(path)[0].structure.symbols[0][0] == "cria"
        return
    with pytest.raises(UserError) as error:
        read_passages(path)
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in words), error.value


def test_files_that_are_no_passages(tmp_path):
    for content, words in (("{", "JSON"), ("[]", "empty list"), ("[3]", "found 3")):
        (tmp_path / "file.json").write_text(content)
        with pytest.raises(UserError, match=words):
            read_passages(tmp_path / "file.json")
    with pytest.raises(UserError, match="expected a file, found none"):
        read_passages(tmp_path / "nothing.json")
    shallow = json.loads(LLAMA.read_text(encoding="utf-8")) | {"facts": [FACT]}
    (tmp_path / "two.json").write_text(json.dumps([shallow, json.loads(LLAMA.read_text(encoding="utf-8"))]))
    with pytest.raises(UserError, match="expected one depth"):
        read_passages(tmp_path / "two.json")


def test_a_passage_is_scored(planted, tmp_path):
    """ "b = 1 \\n a = 0 … value of b ?" as a passage: the planted heads read it like any other question."""
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score
    from hopscope.tasks.text import TextConfig, question

    asked = question(TextConfig(formulation="equations", depth=1), 0, 0)
    (query,) = asked.structure.query
    facts = [
        {
            "given": [fact.given[0].start, fact.given[0].end],
            "found": [fact.found.start, fact.found.end],
            "step": 1,
        }
        for fact in asked.structure.facts
        if fact.chain == asked.structure.chain
    ]
    data = {"text": asked.prompt, "query": [query.start, query.end], "facts": facts, "answer": asked.answer}
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({**data, "acceptable": list(asked.acceptable)}))
    model = attentive("planted", planted.llama(), planted.tokenizer())
    found = score(model, passages=path, top=(3,), draws=2)
    layer, head = planted.HOP
    assert found["targets"]["answer:hop_1"]["scores"][layer][head] > 0.99
    assert found["targets"]["answer:hop_1"]["interval"] is None
    (row,) = found["ablation"]
    assert (row["accuracy"], row["interval"], row["random"]["interval"]) == (1.0, None, None)
    assert row["margin"]["top"] < row["margin"]["clean"] - 5
    assert found["claims"][0]["verdict"] == "not run"  # one passage says nothing about what a model can do


def test_one_token_for_two_mentions_is_named(planted):
    from hopscope.language.heads.tokens import Reader

    (question,) = read_passages(LLAMA)
    first = question.structure.facts[0]
    merged = replace(first, found=replace(first.found, start=first.given[0].start))
    facts = (merged, *question.structure.facts[1:])
    vocabulary = dict.fromkeys(
        ["<unk>", *re.findall(r"\w+|[^\w\s]", question.prompt), "flock", "group", "pack"]
    )
    reader = Reader(planted.tokenizer(words=tuple(vocabulary)))
    with pytest.raises(UserError, match="that it shares with 'Llamas'"):
        reader.read(replace(question, structure=replace(question.structure, facts=facts)))


@pytest.mark.parametrize(
    "content",
    [b"[" * 20_000, b"\xff", b'{"text": NaN}', b'{"text": "\\ud800"}', b"7" * 5_000, b""],
    ids=range(6),
)
def test_what_is_no_json_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "passage.json"
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=r"passage\.json: expected whole JSON, found .*docs/heads\.md"
    ) as caught:
        read_passages(path)
    assert "\n" not in str(caught.value)
