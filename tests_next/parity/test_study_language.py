"""The studies of language models, of natural text and of small language models in both houses."""

import json
import math
from pathlib import Path

import pytest
import torch

from hopscope.studies.llm.asking import asked_of
from hopscope.studies.loading import find_study
from hopscope.studies.natural.counting import DEFINITIONS as OLD_DEFINITIONS
from hopscope.studies.natural.counting import beyond_chance, count, two_hop_shares
from hopscope.studies.natural.texts import texts as old_texts
from hopscope.studies.tiny_lm.analysis import evaluator
from hopscope_next.claims.judge import judge
from hopscope_next.runs import Evidence
from hopscope_next.studies.llm.options import Options as Asked
from hopscope_next.studies.natural import texts as counting
from hopscope_next.studies.tiny_lm.measures import depths
from hopscope_next.study.jobs import plan
from hopscope_next.study.load import load

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
LLM = sorted(path.parent.name for path in RESULTS.glob("llm/*/evidence.parquet"))
RUNS = [*(f"llm/{name}" for name in LLM), "natural/laptop", "tiny_lm/laptop", "tiny_lm/seeds"]
WORDS = 1_200
PRESETS = [
    ("natural", "smoke"),
    ("natural", "laptop"),
    *(("tiny-lm", name) for name in ("smoke", "laptop", "paper")),
]


@pytest.mark.parametrize("name, preset", PRESETS)
def test_the_same_members(name, preset):
    few = {"words": WORDS} if name == "natural" else {}
    program = find_study(name)
    own = {f"options.{field}": value for field, value in few.items()}
    jobs = program.jobs(program.configured(preset, own))
    theirs = [(job, each) for job in jobs for each in job.members]
    study = load(name).study.chosen(preset, few)
    ours = [(job, each) for job in plan(study) for each in job.members]
    assert len(ours) == len(theirs) > 0
    for (job, member), (old, planned) in zip(ours, theirs, strict=True):
        found = (member.member, member.seed, member.init_seed, member.data_seed, member.configuration)
        assert found == (planned.member, planned.seed, planned.init_seed, planned.data_seed, old.label)
        for new, before in (
            (job.config, old.model),
            (job.training, old.training),
            (job.task["fields"], old.task),
        ):
            one, other = (json.loads(json.dumps(fields(each))) for each in (new, before))
            names = {*one} & {*other}
            assert {each: one[each] for each in names} == {each: other[each] for each in names} and len(
                names
            ) > 5
        asked = program.configured(preset, own)
        held_out = program.chosen(preset, own).held_out if name == "natural" else asked.evaluation_samples
        assert job.held_out == held_out


def fields(value):
    found = value if isinstance(value, dict) else value.model_dump(mode="json")
    return found.get("fields", found)


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_the_same_questions(preset):
    old = find_study("llm").configured(preset, {"count": 3})
    theirs = [question.prompt for one in asked_of(old) for question in one.questions()]
    new = load("llm").study.chosen  # which asks for a model
    options = new(preset, {"model": ("a/b",), "count": 3}).options
    assert [question.prompt for kind in options.kinds() for question in kind.drawn()] == theirs
    assert old.protocol_deviations() == Asked(count=3).departures()


@pytest.mark.parametrize("at", range(len(counting.DEFINITIONS)))
def test_the_same_counts(at):
    new, old = counting.DEFINITIONS[at], OLD_DEFINITIONS[at]
    assert (new.name, new.by, new.window, new.any, new.shuffles) == tuple(old)
    (_, one), (_, other) = counting.texts((), 5_000), old_texts((), 5_000)
    assert (one.words, one.sha256) == (len(other.words), other.sha256)
    found, *chance, control = counting.labels(one, new)
    own, mixed, again = count(other, old)
    for labels, counts in ((found, own), (control, again)):
        assert counting.by_blocks(one, labels, chance) == pytest.approx(
            beyond_chance(counts, mixed), abs=1e-12
        )


def test_the_same_shares_of_two_hops():
    assert counting.two_hop_shares((), WORDS) == two_hop_shares((), WORDS)


def test_the_same_accuracy_in_training():
    study, program = load("tiny-lm").study.chosen("laptop"), find_study("tiny-lm")
    job, (old, *_) = plan(study)[0], program.jobs(program.configured("laptop", {}))
    task = type(study.task)(**job.task["fields"])

    class Said:
        """Logits that depend on the tokens alone."""

        readout = torch.nn.Linear(1, 1)

        def __call__(self, inputs):
            length, size = len(task.shape().readout), len(task.vocabulary)
            seen = inputs.float().cumsum(-1)[..., : length * 7 : 7, None]
            every = (seen[:, :, :length] * torch.arange(1, 1 + size)).sin()
            rows = torch.zeros(*inputs.shape[:2], length, size)
            rows[:, :, : every.shape[2]] = every
            rows[:, :, every.shape[2] :] = every[:, :, -1:]
            return rows

    class Context:
        ensemble, options = Said(), study.options

    Context.task = task
    found = {row["metric"]: row["value"] for row in depths.function(Context)}
    theirs = evaluator(program.configured("laptop", {}), old.task.on())(Said(), [0])
    assert {metric for _, metric in theirs} == {*found}
    for (_, metric), value in theirs.items():
        assert found[metric].tolist() == pytest.approx(value.tolist(), rel=1e-5)


def near(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    return (
        math.isclose(one, other, rel_tol=1e-9)
        if isinstance(one, float) and other is not None
        else one == other
    )


@pytest.mark.parametrize("run", RUNS)
def test_the_same_verdicts(run):
    folder = RESULTS / run
    config = json.loads((folder / "config.json").read_text())
    name = config["study"]
    own = {"model": ("a/b",)} if name == "llm" else {"seeds": 3} if run.endswith("seeds") else {}
    study = load(name).study.chosen(config["preset"], own)
    if name == "llm":  # models were named in another way, so that not every precision fits them
        given = {field: value for field, value in config["config"].items() if field != "precision"}
        study = study.model_copy(update={"options": Asked(**given)})
    evidence = Evidence.read(folder / "evidence.parquet")
    dump = {
        each: getattr(study, each).model_dump(mode="json") for each in ("model", "training") if study.task
    }
    evidence.config = {"identity": dump}
    committed = {each["id"]: each for each in json.loads((folder / "claims.json").read_text())}
    claims = study.all_claims()
    assert {claim.id for claim in claims} == {*committed}
    for claim in claims:
        found, theirs = (
            judge(claim, evidence, completion=study.completion if study.task else None).model_dump(
                mode="json"
            ),
            committed[claim.id],
        )
        for field in ("statement", "source", "protocol", "verdict", "value", "interval", "n"):
            assert near(found[field], theirs[field]), (claim.id, field, found[field], theirs[field])
