"""The study of natural text: its texts, what it counts, its claims and its page."""

import math
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import page_of, rows_of

from hopscope.claims.judge import judge
from hopscope.errors import UserError
from hopscope.runs import Evidence
from hopscope.studies.natural import study as module
from hopscope.studies.natural.study import (
    DEEPEST,
    DEFINITIONS,
    PARTS,
    TEXT,
    UNIFORM,
    USUAL,
    ZIPF,
    Options,
    Text,
    by_blocks,
    claims,
    configurations,
    hops,
    labels,
    study,
    texts,
)  # fmt: skip

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "natural"
OUTCOMES = ("learned", "nothing")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("hopscope.page.files._drawn", lambda name, spec: ("<svg/>", b""))
    monkeypatch.setattr(module, "two_hop_shares", lambda read: {USUAL.name: 0.0625, "other": 0.125})


def test_a_text_ends_at_its_last_word_that_is_counted(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("one two, three. four")
    found = texts((str(file),), 3)[-1]
    assert (found.name, found.text, found.words) == ("own", "one two, three", 3)
    assert [each.words for each in texts((), 211)] == [211, 211]


@pytest.mark.parametrize(
    "name, content",
    [
        ("absent.txt", None),
        ("latin.txt", b"caf\xe9"),
        ("own · two.txt", b""),
        ("empty.txt", b""),
        ("one.txt", b"word..."),
    ],
)
def test_a_file_that_cannot_be_counted_is_one_line(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="files: expected") as error:
        texts((str(tmp_path / name),), 100)
    assert "\n" not in str(error.value)


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=3, max_size=97))
def test_of_one_block_the_excess_is_that_of_the_text(words):
    text = Text("own", "here", " ".join(words), "", len(words))
    own, *chance, control = labels(text, DEFINITIONS[4])
    assert len(chance) == DEFINITIONS[4].shuffles and len(control) == len(own)
    found = by_blocks(text, own, chance)
    # What one hop finds: as often as it does, less the share of chance of what could need a hop.
    rate = np.mean([(each == 1).mean() for each in chance])
    assert found.shape == (1, 3) and math.isclose(found[0, 0], (own == 1).mean() - rate, abs_tol=1e-12)


@pytest.mark.parametrize("words", [99, 1 << 31])
def test_words_are_bounded(words):
    with pytest.raises(UserError, match="words: expected"):
        study.changed({"words": words})


def test_a_share_is_one():
    with pytest.raises(UserError, match=r"shares: expected numbers from 0 to 1, found 1\.5"):
        study.chosen("smoke", {"shares": (0.3, 1.5)}).grid()


def test_every_mixture_is_trained_once():
    found = [*configurations(Options(shares=(0.3,)))]
    assert [each.label for each in found] == [
        DEEPEST,
        UNIFORM,
        ZIPF,
        "0.3 two hops",
        TEXT,
        "as in the text, at most",
    ]
    assert [each.overrides["task.shares"][1] for each in found[-2:]] == [0.0625, 0.125]


def counted(excess, blocks=11):
    """Rows of nine texts whose tokens need hops so often beyond chance; of the shuffled text nothing is left."""
    for name in (f"text {number}" for number in range(9)):
        yield {"measure": "hops", "metric": "words", "part": PARTS.join((name, "a file", "SHA-256 0123456789abcdef")),
               "value": 22_000.0}  # fmt: skip
        for definition in (each.name for each in DEFINITIONS):
            for hop, value in enumerate(excess, start=1):
                place = PARTS.join((definition, name))
                for metric, part, number in (
                    *((f"excess_{hop}", f"{place}{PARTS}{block}", value + 1e-6 * block) for block in range(blocks)),
                    *((f"control_{hop}", f"{place}{PARTS}{block}", 1e-6 * block) for block in range(blocks)),
                    (f"share_{hop}", place, value + 0.01), (f"chance_{hop}", place, 0.01),
                ):  # fmt: skip
                    yield {"measure": "hops", "metric": metric, "part": part, "value": number}


@pytest.mark.parametrize(
    "excess, more, two",
    [
        ((0.1, 0.01, 0.001), "reproduced", "reproduced"),
        ((0.01, 0.1, 0.0), "refuted", "reproduced"),
        ((0.1, 0.0, 0.0), "reproduced", "refuted"),
        ((0.1, 0.0, 0.01), "refuted", "refuted"),
    ],
)
def test_the_claims_of_texts(excess, more, two):
    evidence = Evidence.of(counted(excess), [])
    found = {claim.id: judge(claim, evidence) for claim in [*claims(Options())][:2]}
    assert (found["S6a"].verdict, found["S6c"].verdict) == (more, two)
    assert judge(next(claims(Options(words=100))), evidence).verdict == "inconclusive"


def words_of(page):
    return " ".join(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", page)).split())


@pytest.mark.parametrize("diverged", [(), (1,), "all"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_page_of_any_outcome(tmp_path, outcome, diverged):
    def rows(planned):
        steps = ("step_1", "step_2")
        own = (row for row in rows_of(planned, outcome, diverged) if row.get("part") not in steps)
        every = [(job, each.member) for job in planned for each in job.members]
        times = ({"member": member, "step": job.training.steps, "measure": "learned_at", "metric": "learned_at",
                  "part": part, "value": None if diverged == "all" or member in diverged else
                  21.0 if outcome == "learned" else math.inf} for job, member in every for part in steps)  # fmt: skip
        return chain(own, times, counted((0.1, 0.01, 0.0)))

    page, _ = page_of(tmp_path, "natural", "smoke", rows)
    found = words_of(page)
    assert ("diverged in" in found) == bool(diverged) and "nan" not in found.lower().split()
    assert ("so there is no answer" in found) == (diverged == "all")
    if not diverged:
        every = "2 of 2" if outcome == "learned" else "0 of 2"
        assert f"From a mixture in the proportion of texts, {every} models learned two hops" in found


def test_the_page_of_a_committed_run(tmp_path):
    page, ledger = page_of(
        tmp_path, "natural", "laptop", parquet=RESULTS / "torch-schedule" / "evidence.parquet"
    )
    assert len(words_of(page)) > 3000 and all(verdict.id in page for verdict in ledger)


def test_what_is_counted():
    assert hops.when == "run" and study.measures[-1] is hops
