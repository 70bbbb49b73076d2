"""`hopscope corpus`."""

import io
import json

import pytest

TEXT = "Anna knows Bert. Bert paints ships. Ships need tar. Anna tar. Bert tar. Anna ships."


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_json(hopscope, file):
    from hopscope.language.corpus.depth import measure

    said = hopscope("corpus", file, "--json")
    assert (said.status, said.err) == (0, "")
    found = json.loads(said.out)
    assert found == {"file": str(file), **measure(TEXT)}
    assert list(found) == [
        "file", "tokens", "sentences", "texts", "form", "definition", "window", "limit", "seed", "histogram",
        "shuffled", "shuffles", "excess", "zipf", "shuffled_exponent",
    ]  # fmt: skip


def test_table(hopscope, file):
    from hopscope.language.corpus.depth import measure

    found = measure(TEXT)
    said = hopscope("corpus", file)
    assert said.status == 0
    rows = [line.split("│")[1:4] for line in said.out.splitlines() if "│" in line]
    assert [(name.strip(), words.strip()) for name, words, _ in rows] == [
        (name, str(count)) for name, count in found["histogram"].items()
    ]
    assert f"s = {found['zipf']['exponent']:.2f}" in said.out
    # Of one number of steps there is no law.
    file.write_text("Anna knows Bert. Anna saw Bert.", encoding="utf-8")
    assert "there are none" in hopscope("corpus", file).out


def test_standard_input(hopscope, monkeypatch):
    class Input:
        buffer = io.BytesIO(b"d = 1\ne = d\nf = e\nf = 1\n\nd = 2\nf = 2\n")

    monkeypatch.setattr("sys.stdin", Input)
    found = json.loads(hopscope("corpus", "-", "--form", "lines", "--json").out)
    assert (found["histogram"]["3"], found["texts"], found["sentences"]) == (1, 2, 6)


@pytest.mark.parametrize(
    ("words", "found_words"),
    [
        ((), ["FILE"]),
        (("nothing.txt",), ["nothing.txt: expected a readable file"]),
        (("FILE", "--window", "1"), ["window: expected at least 2, found 1"]),
        (("FILE", "--limit", "0"), ["limit: expected at least 1"]),
        (("FILE", "--form", "verse"), ["--form", "verse"]),
    ],
)
def test_refused(hopscope, file, words, found_words):
    said = hopscope("corpus", *(file if word == "FILE" else word for word in words))
    assert all(part in said.complaint for part in found_words), said.complaint


def test_text_of_another_encoding(hopscope, file):
    file.write_bytes(b"caf\xe9 caf\xe9")
    assert "expected UTF-8 text" in hopscope("corpus", file).complaint
    file.write_bytes(b"")
    assert "two content words" in hopscope("corpus", file).complaint
