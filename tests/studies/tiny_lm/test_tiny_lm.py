"""The study of a small language model: its mixtures, what is measured in training, its claim and its page."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from made import page_of

from hopscope.claims.judge import judge
from hopscope.errors import UserError
from hopscope.language import Equations
from hopscope.runs import Evidence, Member
from hopscope.studies.tiny_lm.study import CORPUS, DEEPEST, depths, shares, study

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "tiny_lm"
SCALE = {"training.steps": 30_000, "control": True}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("hopscope.page.files._drawn", lambda name, spec: ("<svg/>", b""))
    monkeypatch.setattr("hopscope.studies.tiny_lm.study.find_spec", lambda name: object())


def test_a_text_decides_how_often_each_depth_is_drawn(tmp_path):
    file = tmp_path / "own.txt"
    chain = "Alice lives near Bob. Bob loves Carol. Carol owns Paris. Then Alice asked Paris. Later Alice met Carol."
    file.write_text(" ".join([chain] * 3))
    found = shares(file.read_text(), (1, 2))
    assert sum(found) == pytest.approx(1.0) and found[1] > 0
    grid = study.changed({"corpus": str(file), "control": True}).grid()
    labels = {each.label: each.overrides["task.mixture"] for each in grid}
    assert labels == {"uniform": "uniform", "zipf": "zipf", CORPUS: found, DEEPEST: (0.0, 1.0)}


@pytest.mark.parametrize(
    "content, words", [(None, "expected a text file"), ("A cat sat.", "that need 2 hops")]
)
def test_a_text_without_hops_is_one_line(tmp_path, content, words):
    if content is not None:
        (tmp_path / "own.txt").write_text(content)
    with pytest.raises(UserError, match=words):
        study.changed({"corpus": str(tmp_path / "own.txt")}).grid()


def test_a_text_that_has_changed_is_read_again(tmp_path):
    file, own = tmp_path / "own.txt", study.changed({"corpus": str(tmp_path / "own.txt")})
    file.write_text("Alice lives near Bob. Bob loves Carol. Alice met Carol. " * 3)
    own.grid()
    file.write_text("A cat sat.")
    with pytest.raises(UserError, match="that need 2 hops"):
        own.grid()


@pytest.mark.parametrize(
    "field, value",
    [("norm", "post"), ("width", 16), ("positions", "none"), ("causal", False), ("head_dim", 4)],
)
def test_a_model_that_no_exam_can_ask_is_refused_before_training(field, value):
    with pytest.raises(UserError, match="in GPT-2's layout"):
        study.chosen("smoke", {f"model.{field}": value}).grid()


def test_without_a_mixture_is_one_line():
    with pytest.raises(UserError, match=r"mixtures: expected .* at least 1"):
        study.changed({"mixtures": ()})


def test_accuracy_in_training_is_that_of_the_answers():
    """A model that knows the answers of one depth, and says another value at the others."""
    task = Equations(chains=3, depths=(1, 2))

    class Known:
        readout = SimpleNamespace(weight=torch.zeros(1))

        def __call__(self, inputs):
            known = [task.vocabulary.index(str(value)) for value in range(3)]
            logits = torch.zeros(2, *inputs.shape[1:2], len(task.shape().readout), len(task.vocabulary))
            for sample, tokens in enumerate(inputs[0].tolist()):
                words = [task.vocabulary[token] for token in tokens]
                told = dict(zip(words[::3], words[2::3], strict=False))
                asked = words[words.index("of") + 1] if "of" in words else words[0]
                while asked in told and not asked.isdigit():
                    asked = told[asked]
                logits[0, sample, :, known[int(asked)]] = 50.0  # the second member says nothing
            return logits

    context = SimpleNamespace(task=task, ensemble=Known(), job=SimpleNamespace(held_out=13))
    found = {row["metric"]: row["value"].tolist() for row in depths.function(context)}
    assert [found[f"accuracy_depth_{depth}"][0] for depth in (1, 2)] == [1.0, 1.0]
    assert found["loss_depth_1"][0] < 1e-6 < found["loss_depth_1"][1]


def members_of(**right):
    """Evidence in which each mixture has members that answer so much rightly at once."""
    every = [(mixture, value) for mixture, values in right.items() for value in values]
    members = [Member(member=at, seed=at, configuration=mixture, overrides={}, init_seed=at, data_seed=at, unit="u")
               for at, (mixture, _) in enumerate(every)]  # fmt: skip
    rows = [{"member": at, "step": 7, "measure": "exam", "metric": "first_accuracy", "part": "depth_2", "value": value}
            for at, (_, value) in enumerate(every)]  # fmt: skip
    return Evidence.of(rows, members)


@pytest.mark.parametrize(
    "found, verdict",
    [
        ({"zipf": [0.97] * 11, "uniform": [1.0] * 11, "deepest": [0.25] * 11}, "reproduced"),
        ({"zipf": [0.97] * 10 + [0.3], "uniform": [1.0] * 11, "deepest": [0.25] * 11}, "refuted"),
        ({"zipf": [0.97] * 11, "uniform": [1.0] * 11, "deepest": [1.0] * 11}, "inconclusive"),
        ({"zipf": [0.97] * 5 + [None] * 6, "uniform": [1.0] * 11, "deepest": [0.25] * 11}, "inconclusive"),
        # In the uniform mixture no question is rare.
        ({"zipf": [0.97] * 11, "uniform": [0.3] * 11, "deepest": [0.25] * 11}, "reproduced"),
        ({"uniform": [1.0] * 11, "deepest": [0.25] * 11}, "not run"),
    ],
)
def test_the_claim(found, verdict):
    judged = judge(study.changed(SCALE).all_claims()[0], members_of(**found))
    assert judged.verdict == verdict, judged


def test_without_control_or_scale_nothing_is_decided():
    judged = judge(study.all_claims()[0], members_of(zipf=[1.0] * 11, uniform=[1.0] * 11))
    assert judged.verdict == "inconclusive" and "no control" in judged.words


def rows_of(planned, right, diverged):
    for job in planned:
        for member in (each.member for each in job.members):
            gone = diverged == "all" or member in diverged
            at = {"member": member, "step": job.training.steps}
            for depth in (1, 2):
                for step, value in ((0, 0.25), (job.training.steps, None if gone else right)):
                    yield {**at, "step": step, "metric": f"accuracy_depth_{depth}", "value": value}
                for metric in ("accuracy", "first_accuracy", "acceptance"):
                    for end in ("", "_low", "_high"):
                        yield {**at, "measure": "exam", "metric": metric + end, "part": f"depth_{depth}",
                               "value": None if gone else right}  # fmt: skip
            yield {**at, "step": job.training.steps, "metric": "loss", "value": None if gone else 1 - right}
            if not gone and right > 0.9:
                for metric, value in (("paths", 5), ("heads", 3), ("minimal_circuits", 1), ("was_read", 1)):
                    yield {**at, "measure": "circuit", "metric": metric, "value": float(value)}
                for part in ("full", "rules"):
                    yield {**at, "measure": "circuit", "metric": "circuit_loss", "part": part, "value": 0.125}


def words_of(page):
    return " ".join(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", page)).split())


@pytest.mark.parametrize("diverged", [(), (1,), "all"])
@pytest.mark.parametrize("right", [1.0, 0.25])
def test_a_page_of_any_outcome(tmp_path, right, diverged):
    page, _ = page_of(tmp_path, "tiny-lm", "laptop", lambda planned: rows_of(planned, right, diverged))
    found = words_of(page)
    assert ("Training diverged" in found) == bool(diverged) and "nan" not in found.lower().split()
    assert ("so there is no answer" in found) == (diverged == "all")
    if not diverged:
        assert ("No model learned a depth" in found) == (right < 0.9)
        assert f"models answer {100 * right:.0f} %" in found.replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_of_a_committed_run(tmp_path):
    table = RESULTS / "seeds" / "evidence.parquet"
    page, ledger = page_of(tmp_path, "tiny-lm", "laptop", parquet=table, fields={"seeds": 3})
    assert len(words_of(page)) > 2000 and ledger[0].verdict == "inconclusive"


def test_more_questions_than_there_are_is_told_before_training(monkeypatch):
    monkeypatch.setattr("hopscope.studies.tiny_lm.study.find_spec", lambda name: True)
    with pytest.raises(UserError, match=r"count: expected at most 18, .* found 300"):
        study.chosen(None, {"task.chains": 3}).grid()
