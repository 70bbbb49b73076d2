"""The library's door: run, open, look inside, without a command."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch

import hopscope as hs
from hopscope import api
from hopscope.cli import main
from hopscope.config import Config


def study(**fields):
    """A study that only this process has, as one of a notebook."""

    class Copy(hs.Task):
        """Repeat a token."""

        length: int = 3

        def shape(self):
            return hs.Shape(inputs="tokens", input_size=5, positions=self.length, readout=(2,), output_size=5)

        def sample(self, draws):
            tokens = draws.integers("tokens", 5, (self.length,))
            source = draws.constant(0, (self.length,))
            return hs.Batch(inputs=tokens, targets=tokens[..., :1], relations={"source": source})

    given = {
        "name": "tiny",
        "task": Copy(),
        "model": hs.Model(layers=1, heads=1, width=8),
        "training": hs.Training(steps=40, batch_size=2, checkpoint_every=20),
        "vary": {"model.layers": [1, 2]},
        "measures": [hs.measures.attention_to("source")],
        "claims": [
            hs.Claim(
                id="C1",
                statement="It copies.",
                source="here",
                protocol="accuracy at the end",
                value=lambda evidence: evidence.last("accuracy"),
                must=hs.at_least(0.0),
            )
        ],
        "held_out": 7,
        "seeds": 3,
    }
    return hs.Study(**(given | fields))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return hs.run(study(), out=tmp_path_factory.mktemp("runs"))


def test_a_run_has_evidence_claims_and_a_page(done):
    assert done.evidence.last("accuracy").shape == (6,)
    assert done.evidence.last("attention_to_source", layer=0, head=0).notna().all()
    assert done.claims["C1"].here_words == "holds here in 6 of 6 members"
    assert (done.path / "report.html").is_file() and done.folder.is_done
    assert "C1" in done._repr_html_()


def test_members_and_ensembles_know_their_task(done):
    member = done.member(2, step=20)
    batch = member.batch(5)
    assert (member.step, batch.inputs.shape, member(batch.inputs).shape) == (20, (5, 3), (5, 1, 5))
    uniform = member.intervene(batch, [hs.ReplacePattern(layer=0, by="uniform")])
    assert not torch.equal(uniform, member.intervene(batch, {}))
    deep = done.ensemble(**{"model.layers": 2})
    cache = deep.cache(deep.batch(5).inputs)
    assert cache["blocks.1.attn.hook_pattern"].shape == (3, 5, 1, 3, 3)
    torch.testing.assert_close(deep.member(1)(batch.inputs), done.member(4)(batch.inputs))
    with pytest.raises(
        hs.UserError, match=r"ensemble: expected members of one configuration, found model\.layers: 1, 2"
    ):
        done.ensemble()
    with pytest.raises(hs.UserError, match="member: expected one of 0 to 5, found 6"):
        done.member(6)


def test_it_is_opened_without_its_study(done):
    opened = hs.open_run(done.path.parents[1])
    assert opened.evidence.last("loss").equals(done.evidence.last("loss"))
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    assert torch.equal(opened.member(0)(tokens), done.member(0)(tokens))
    with pytest.raises(hs.UserError, match="give it: "):
        opened.member(0).batch(5)
    assert hs.open_run(done.path, study()).member(0).batch(5).inputs.shape == (5, 3)


def test_the_same_call_finds_it_and_a_changed_field_makes_a_new_one(done):
    heard = []
    again = hs.run(
        study(), out=done.path.parents[1], listen=lambda unit, message: heard.append(message["kind"])
    )
    assert again.path == done.path and set(heard) == {"found"}
    other = hs.run(study(), out=done.path.parents[1], fields={"training.steps": 20}, seeds=1)
    assert other.path != done.path and len(other.members) == 2


def test_what_another_run_of_the_study_has_trained_is_not_trained_again(tmp_path):
    def trained(run):
        return {
            path.name: path.read_bytes() for path in run.path.glob("units/*/checkpoints/0*40.safetensors")
        }

    of, heard = study(members_per_unit=1), list[tuple[str, str]]()
    first = hs.run(of, seeds=2, out=tmp_path / "a")
    found = hs.run(
        of, out=tmp_path / "a", listen=lambda unit, message: heard.append((unit.name, message["kind"]))
    )
    assert (
        len({name for name, kind in heard if kind == "progress"}) == 2
    )  # the third seed of both configurations
    assert trained(found) == trained(hs.run(of, out=tmp_path / "b"))
    assert hs.open_run(first.path, of).loaded.study.seeds == 2
    assert found.evidence.last("accuracy").shape == (6,)


def test_a_conclusion_that_fails_leaves_no_run_of_two_ages(tmp_path):
    def of(value, must):
        rate = hs.measure(lambda context: {"rate": [value] * len(context.members)}, name="rate")
        claim = hs.Claim(id="C", statement="", source="", protocol="", value=must, must=hs.at_least(0.5))
        return study(measures=[rate], claims=[claim], vary={}, seeds=1, name="two")

    def last(evidence):
        return evidence.last("rate")

    path = hs.run(of(1.0, last), out=tmp_path).path
    with pytest.raises(hs.UserError, match="claim 'C'"):
        hs.run(of(0.0, lambda evidence: evidence.nothing), out=tmp_path)
    assert not hs.open_run(path).folder.is_done
    assert hs.run(of(0.0, last), out=tmp_path).claims["C"].here.verdict == "refuted"


def test_a_drawing_that_was_altered_is_refused_by_the_same_call(tmp_path):
    of = study(vary={}, seeds=1, measures=[], figures=[hs.figures.curves("loss")])
    file = hs.run(of, out=tmp_path).path / "figures" / "loss.svg"
    drawn = file.read_bytes()
    file.write_bytes(drawn[:-9] + b"#" + drawn[-8:])
    for _ in range(2):
        with pytest.raises(
            hs.UserError, match=r"loss\.svg: expected the content that was written.*delete it"
        ):
            hs.run(of, out=tmp_path)
    file.unlink()
    hs.run(of, out=tmp_path)
    assert file.read_bytes() == drawn


def test_a_run_that_was_begun_on_a_gpu_needs_one(tmp_path, monkeypatch):
    def stopped(*given, **more):
        raise hs.TimeBudgetReached("here")

    with monkeypatch.context() as begun:
        begun.setattr(api.ThisMachine, "device", lambda place, asked: "cuda")
        begun.setattr(api, "train_all", stopped)
        with pytest.raises(hs.TimeBudgetReached):
            hs.run(study(seeds=1), out=tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(hs.UserError, match="expected a GPU, on which the run was begun, found none"):
        hs.run(study(seeds=1), out=tmp_path, device="cpu")


def test_training_without_a_run():
    of = study()
    ensemble = hs.train(of.task, of.model, of.training, seeds=2, device="auto")
    assert len(ensemble) == 2 and ensemble.step == 40
    bare = hs.train(of.task, of.model, of.training, seeds=2, completion="gpt2-base")
    assert not torch.equal(bare.readout.weight, ensemble.readout.weight)


def test_a_copy_at_a_url_goes_on_elsewhere(tmp_path, monkeypatch):
    url, heard = f"file://{tmp_path}/far", []
    for cache in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
        hs.run(study(), out=url, seeds=1, listen=lambda unit, message: heard.append(message["kind"]))
    assert heard.count("done") == 2 and heard[-2:] == ["found", "found"]
    with pytest.raises(
        hs.UserError, match="expected a folder that all machines share for slurm, found the URL"
    ):
        api._made(url, "slurm", {"study": "tiny"}, print)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"out": ""}, "out: expected a folder, found an empty path"),
        ({"threads": 0}, "threads: expected a whole number from 1, found 0"),
        ({"threads": "2"}, "threads: expected a whole number from 1, found '2'"),
        ({"time_budget": 0.0}, "time-budget: expected a number of seconds above 0, found 0.0"),
        ({"time_budget": "1h"}, "time-budget: expected a number of seconds above 0, found '1h'"),
        ({"tracker": "paper"}, "tracker: expected one of tensorboard, wandb, trackio, found 'paper'"),
        ({"device": "tpu"}, "device: expected one of auto, cpu, cuda"),
        ({"executor": "ray"}, "executor: expected a study of a file or a package for ray"),
        ({"preset": "large"}, "preset: expected none"),
    ],
)
def test_arguments_that_do_not_fit_are_one_line(tmp_path, arguments, words):
    with pytest.raises(hs.UserError, match=words):
        hs.run(study(), **{"out": tmp_path / "runs", **arguments})
    assert not (tmp_path / "runs").exists()


def test_a_page_that_is_not_there_is_told_before_training(tmp_path):
    with pytest.raises(
        hs.UserError, match=r"page: expected a template, or its file .*, found no .*none\.md\.j2"
    ):
        hs.run(study(page="none.md.j2"), out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_package_is_instant():
    code = "import sys, hopscope\nprint({'torch', 'numpy', 'pandas', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    assert set(hs.__all__) <= set(dir(hs))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hs.nothing


def test_a_run_that_was_not_concluded_shows_no_old_verdicts(done, tmp_path, capsys):
    again = hs.open_run(shutil.copytree(done.path, tmp_path / "tiny" / done.path.name))
    assert again.claims["C1"].here_words
    again.folder.reopen()
    with pytest.raises(hs.UserError, match="expected a run that was concluded"):
        hs.open_run(again.path).claims  # noqa: B018
    assert main(["claims", str(again.path)]) == 0 and "not finished" in capsys.readouterr().out


def test_a_page_finds_floors_and_options_of_every_configuration(tmp_path):
    page = """# P

{% for each in configurations %}{{ learned(configuration=each.label) }}{% endfor %}

<{{ estimate("depth", depth=2).mean }} {{ estimate("depth", **{"options.depth": 1}).mean }} {{ estimate("whole") }}>
"""

    class Depth(Config):
        depth: int = 1

    @hs.measure
    def depth(context):
        return {"depth": [float(context.options.depth)] * len(context.members)}

    @hs.measure(when="run")
    def whole(context):
        return {"whole": 0.625}

    fields = {"vary": {}, "claims": (), "page": page, "options": Depth(), "measures": [depth, whole], "seeds": 1,
              "training": hs.Training(steps=3, batch_size=2), "members_per_unit": 8}  # fmt: skip
    two = [hs.Configuration(label=f"start {n}", overrides={"init_seed": n}) for n in (3, 5)]
    run = hs.run(study(**fields, configurations=lambda options: two), out=tmp_path)
    assert [*json.loads((run.path / "page.json").read_text())["floors"]] == ["start 3", "start 5"]
    varied = hs.run(study(**{**fields, "vary": {"options.depth": [1, 2]}}), out=tmp_path)
    told = re.sub(r"<[^>]+>", "", (varied.path / "report.html").read_text())
    assert "&lt;2.0 1.0 0.625&gt;" in " ".join(told.split()) and "no floor is known" in told


def test_a_measure_of_a_notebook_is_measured_anew_when_what_it_reads_changes(tmp_path):
    @hs.measure
    def bound(context):
        return {"bound": [BOUND[0]] * len(context.members)}

    made = study(measures=[bound], vary={}, claims=(), seeds=1, training=hs.Training(steps=2, batch_size=2))
    assert hs.run(made, out=tmp_path).evidence.last("bound").tolist() == [3.0]
    BOUND[0] = 5.0
    assert hs.run(made, out=tmp_path).evidence.last("bound").tolist() == [5.0]


BOUND = [3.0]
