"""What a study trains, what names its run, and what a run's record gives back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.runs import RunFolder
from hopscope.study.jobs import Job, ensemble_of, fitted, identity, job_of, of_run, plan, record, task_of
from hopscope.study.load import Loaded, load
from hopscope.study.measure import measure
from hopscope.study.study import Configuration, Study
from hopscope.tasks import Permutation
from hopscope.training.config import Training


class Wishes(Config):
    """Options, of which one changes no result."""

    deepest: int = 2
    timeout: int = Field(50, exclude=True)


@pytest.fixture
def folder(tmp_path):
    def folder(study, loaded=None):
        loaded = loaded or Loaded(study)
        return RunFolder.named(tmp_path, study.name, identity(study)).create(
            record(loaded, plan(study), "smoke")
        )

    return folder


def encoder(**fields):
    usual = {"name": "look-up", "task": Permutation(values=3), "training": Training(steps=3)}
    model = Model(width=4, norm="post", activation="relu")
    return Study(**{**usual, "model": model, "seeds": 19, **fields})


@given(layers=st.integers(1, 3), seeds=st.integers(1, 5), size=st.integers(1, 4))
@settings(max_examples=25)
def test_members_are_numbered_through_the_run(layers, seeds, size):
    study = encoder(vary={"model.layers": [*range(1, layers + 1)]}, seeds=seeds, members_per_unit=size)
    jobs = plan(study)
    members = [member for job in jobs for member in job.members]
    assert [member.member for member in members] == [*range(layers * seeds)]
    assert [(member.seed, member.init_seed, member.data_seed) for member in members] == [
        (seed,) * 3 for seed in range(seeds)
    ] * layers
    assert all(len(job.members) <= size and {m.unit for m in job.members} == {job.name} for job in jobs)
    assert all(job.model.layers == job.overrides["model.layers"] == job.config.layers for job in jobs)
    assert len({job.name for job in jobs}) == len(jobs)


@pytest.mark.parametrize(
    ("fields", "device", "sizes"),
    [({}, "cpu", [16, 3]), ({"model": Model(width=4)}, "cpu", [1] * 19), ({}, "cuda", [19])],
)
def test_the_size_of_units_follows_the_engine(fields, device, sizes):
    jobs = plan(encoder(**fields), device)
    assert [len(job.members) for job in jobs] == sizes and {job.device for job in jobs} == {device}


def test_configurations_that_differ_in_seeds_alone_share_a_unit():
    def configurations(options):
        yield Configuration(label="own", seeds=3)
        for init, data in ((0, 1), (1, 0)):
            yield Configuration(overrides={"init_seed": init, "data_seed": data}, seeds=(init,))
        yield Configuration(label="begun elsewhere", seeds=2)

    jobs = plan(encoder(configurations=configurations))
    assert [[member.configuration for member in job.members] for job in jobs] == [
        ["own"] * 3, ["init_seed 0, data_seed 1", "init_seed 1, data_seed 0"], ["begun elsewhere"] * 2,
    ]  # fmt: skip
    assert [(m.seed, m.init_seed, m.data_seed) for m in jobs[1].members] == [(0, 0, 1), (1, 1, 0)]


def test_equal_trainings_have_one_name_in_every_run(study):
    few, many = plan(study(seeds=2)), plan(study(seeds=3, question="Why?", claims=[]))
    assert [job.name for job in few] == [job.name for job in many[:2]]
    others = [study(held_out=17), study(training=Training(steps=8))]
    assert not {job.name for job in few} & {job.name for each in others for job in plan(each)}


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"question": "Why?", "page": "# a", "figures": [print], "presets": {"smoke": {}}}, True),
        ({"measures": [measure(lambda context: None, name="late")], "members_per_unit": 2}, True),
        ({"options": Wishes(timeout=7)}, True),
        ({"options": Wishes(deepest=7)}, False),
        ({"measures": [measure(lambda context: None, name="early", when="training")]}, False),
        ({"seeds": 3}, False),
        ({"held_out": 17}, False),
        ({"completion": "gpt2-base"}, False),
        ({"vary": {"model.layers": [1]}}, False),
        ({"start": lambda job: None}, False),
    ],
)
def test_what_names_a_run(study, fields, same):
    usual = study(options=Wishes)
    assert (identity(usual) == identity(study(**{"options": Wishes, **fields}))) == same


def test_the_record_gives_study_job_and_task_back(study, folder):
    made = study(options=Wishes, vary={"task.length": [3, 5], "completion": ["gpt2-base"]}, seeds=3)
    made = made.changed({"deepest": 7, "training.learning_rate": 0.5})
    run = folder(made)
    now = study(options=Wishes(timeout=3), question="Why?", training=Training(steps=999), presets={"a": {}})
    again = fitted(Loaded(now), run).study
    assert identity(again) == run.config["identity"] and again.question == "Why?"
    assert (again.options.deepest, again.options.timeout, again.training.learning_rate) == (7, 3, 0.5)
    jobs = plan(made)
    assert [job_of(unit) for unit in run.units] == jobs
    assert [task_of(job, again).length for job in jobs] == [3] * 3 + [5] * 3
    assert run.members == [member for job in jobs for member in job.members]
    assert (run.config["preset"], run.config["registration"]) == ("smoke", {})


def test_what_follows_from_other_fields_follows_in_a_run_that_is_opened_too(study, folder):
    made = study(training=Training(steps=1000), vary={"training.steps": [7, 1000]}, options=Wishes)
    again = fitted(Loaded(study(options=Wishes)), folder(made)).study
    for now, then, job in zip(again.grid(), made.grid(), plan(made)[::2], strict=True):
        assert again.of(now).training == made.of(then).training == job.training
    assert [again.of(each).training.warmup_steps for each in again.grid()] == [0, 100]


def test_units_are_shared_unless_what_training_records_may_differ(study):
    early = measure(lambda context: {"x": context.options.deepest}, name="early", when="training")
    for measures, shared in (([], 2), ([early], 0)):
        made = [study(options=Wishes(deepest=number), measures=measures) for number in (2, 3)]
        names = [{job.name for job in plan(each)} for each in made]
        assert len(names[0] & names[1]) == shared


def test_no_option_that_varies_is_called_as_a_column_of_the_evidence(study):
    class Clashing(Config):
        layer: int = 0

    with pytest.raises(UserError, match="no column of the evidence is called after, found 'layer'"):
        study(options=Clashing(), vary={"layer": [0, 1]})


def test_a_run_is_found_by_its_file_whose_task_must_be_the_same(tmp_path, folder, monkeypatch):
    text = (
        "import hopscope as hs\nclass Mine(hs.tasks.Permutation):\n"
        "    def floors(self):\n        return {'a': 1.0}\n"
        "study = hs.Study(name='mine', task=Mine(values=3), model=hs.Model(), training=hs.Training(steps=3))\n"
    )
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    run = folder(load(str(path)).study, load(str(path)))
    source = run.config["source"]
    assert (source["reference"], source["file"], source["text"]) == (f"{path}:study", "mine.py", text)
    path.write_text(text + "other = 3\n", encoding="utf-8")
    assert identity(of_run(run).study) == run.config["identity"]
    path.write_text(text.replace("1.0", "2.0"), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"expected the study that the run was made with, its task .source .*restore the file"
    ):
        of_run(run)
    path.write_text(
        text.replace("class Mine", "class Other").replace("task=Mine", "task=Other"), encoding="utf-8"
    )
    with pytest.raises(UserError, match="source"):
        of_run(run)
    path.write_text(text.replace("values=3", "valuez=3"), encoding="utf-8")
    with pytest.raises(UserError, match=r"no field 'valuez'.*line 5"):
        of_run(run)
    (tmp_path / "elsewhere").mkdir()
    path.rename(tmp_path / "elsewhere" / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="expected a readable file with a study"):
        of_run(run)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert of_run(run).study.task.values == 3


def test_a_study_of_a_notebook_must_be_given(study, folder):
    run = folder(study())
    with pytest.raises(UserError, match=r"made in a notebook or a function; give it: hs.open_run"):
        of_run(run)
    assert fitted(Loaded(study()), run).study.seeds_of(study().grid()[0]) == (0, 1)
    with pytest.raises(UserError, match="expected the study 'other' as in its record"):
        fitted(Loaded(Study(name="other", options=Wishes)), run)


def test_members_can_be_looked_at_without_the_file_of_their_task(study, folder):
    run = folder(study(members_per_unit=2))
    (unit,) = run.units
    from hopscope.models.transformer import Transformer

    config = Job.model_validate(run.config["units"][0]).config
    weights = Transformer.initial(config, torch.tensor([3, 5])).weights()
    arrays = {f"weights/{name}": weight.numpy() for name, weight in weights.items()}
    unit.keep([], (arrays, {"step": 0, "diverged_at": [None, None]}))

    def gone():
        raise UserError("study: the file is gone")

    members = ensemble_of(unit.members, [unit], gone)
    assert (members.step, members.seeds, len(members)) == (0, (0, 1), 2)
    cache = members.cache(torch.zeros(1, 7, 3, dtype=torch.int64))
    assert cache["blocks.0.attn.hook_pattern"].shape == (2, 7, 1, 3, 3)
    np.testing.assert_array_equal(members.weights()["readout.weight"], weights["readout.weight"])
    with pytest.raises(UserError, match="the file is gone"):
        members.batch(3)


SAMPLES = """
import hopscope as hs
class Odd(hs.Task):
    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=3, readout=(2,), output_size=5)
    def sample(self, draws):
        import random, numpy, torch
        tokens = draws.integers("tokens", 5, (3,))
        {line}
        return hs.Batch(tokens, tokens[..., :1])
study = hs.Study(name="odd", task=Odd(), model=hs.Model(), training=hs.Training(steps=3))
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tokens = torch.randint(5, tokens.shape)", "expected equal samples for equal draws, found others; take all"),
        ("tokens = tokens + numpy.random.randint(2)", "expected equal samples for equal draws|0 to 4"),
        ("tokens = (tokens + random.randrange(5)) % 5", "take all random numbers from `draws`"),
        ("tokens = tokens[..., :2]", r"inputs: expected torch.int64 \[\d+, \d+, 3\]"),
        ("raise KeyError('x')", r"odd.py, line 9: task Odd: expected samples of its shape, found KeyError: 'x'; mend"),
    ],
)  # fmt: skip
def test_a_task_that_breaks_its_promises_is_refused_at_the_start(tmp_path, line, words):
    path = tmp_path / "odd.py"
    path.write_text(SAMPLES.replace("{line}", line), encoding="utf-8")
    loaded = load(str(path))
    with pytest.raises(UserError, match=words) as error, loaded.naming():
        plan(loaded.study)
    assert "\n" not in str(error.value)


def test_a_model_that_does_not_fit_the_task_is_one_line(study):
    with pytest.raises(
        UserError, match=r"study 'echo': 'width 7': .*width: expected a multiple of heads = 2, found 7"
    ):
        plan(study(model=Model(heads=2), vary={"model.width": [8, 7]}))


TABLES = {}


class Remembering(Permutation):
    """Fills a global while it draws."""

    def sample(self, draws):
        TABLES.setdefault(self.values, torch.arange(3))
        return super().sample(draws)


def test_a_task_whose_samples_change_its_source_is_refused():
    with pytest.raises(UserError, match="their first samples change a global that they read"):
        plan(encoder(task=Remembering(values=5)))
