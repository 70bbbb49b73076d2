"""A study as a value: its fields, its grid, and what it refuses, each in one line."""

import json
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from hopscope.claims import Claim, at_least
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.study.measure import measure
from hopscope.study.study import Configuration, Study
from hopscope.tasks import Task
from hopscope.training.config import COMPLETION_NAMES, Training, departures


class Wishes(Config):
    """Options of a study."""

    deepest: int = 2
    words: tuple[str, ...] = ()


@measure
def nothing(context):
    """Measures nothing."""


def claim(name):
    return Claim(
        id=name, statement="s", source="x", protocol="p", value=lambda evidence: [], must=at_least(0.0)
    )


@given(
    layers=st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True),
    rates=st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=4, unique=True),
)
def test_the_grid_is_the_product_in_order_with_different_labels(layers, rates):
    made = Study(
        name="echo", task=Anything(), model=Model(), training=Training(steps=3),
        vary={"model.layers": layers, "training.learning_rate": rates},
    )  # fmt: skip
    grid = made.grid()
    assert [[*each.overrides.values()] for each in grid] == [[one, rate] for one in layers for rate in rates]
    assert len({each.label for each in grid}) == len(grid)
    for each in grid:
        assert (made.of(each).model.layers, made.of(each).training.learning_rate) == (
            *each.overrides.values(),
        )


class Anything(Task):
    length: int = 3
    back: int = 1
    keys: int = 2

    def model_post_init(self, context):
        if self.back >= self.length:
            raise ValueError(f"back: expected less than length = {self.length}, found {self.back}")


@given(fields=st.fixed_dictionaries({}, optional={
    "model.layers": st.integers(1, 5), "training.steps": st.integers(1, 50), "seeds": st.integers(1, 9),
    "task.keys": st.integers(2, 7), "deepest": st.integers(), "completion": st.sampled_from(COMPLETION_NAMES),
}))  # fmt: skip
def test_changed_fields_are_there_and_nothing_else_changes(fields):
    before = Study(
        name="echo", task=Anything(), model=Model(heads=2), training=Training(steps=3), options=Wishes, seeds=3,
        vary={"task.length": [3, 5]},
    )  # fmt: skip
    after = before.changed(fields)
    found = {flag.name: flag.default for flag in after.fields()}
    usual = {flag.name: flag.default for flag in before.fields()}
    course = {*departures(before.completion, after.model, after.training), "training.warmup_steps"}
    assert {name: found[name] for name in fields} == fields
    assert {name for name in found if found[name] != usual[name]} <= {*fields} | course
    assert not departures(after.completion, after.model, after.training)


def test_fields_win_over_the_completion_also_in_a_grid(study):
    made = study(vary={"completion": ["gpt2-base", "torch-schedule"], "model.init": ["encoder", 0.5]})
    found = [(made.of(each).model.init, made.of(each).training.schedule) for each in made.grid()]
    courses = ["constant", "constant", "cosine", "cosine"]
    assert found == [*zip(["encoder", 0.5] * 2, courses, strict=True)]
    assert made.changed({"completion": "gpt2-base"}).vary["completion"] == ("gpt2-base",)


def test_a_varied_field_is_replaced_as_a_list_or_pinned(study):
    varied = study(vary={"model.layers": [1, 2], "options.deepest": [3]}, options=Wishes)
    assert varied.changed({"model.layers": [3, 4, 5]}).vary["model.layers"] == (3, 4, 5)
    for name in ("deepest", "options.deepest"):
        assert varied.changed({name: 5}).vary == {"model.layers": (1, 2), "options.deepest": (5,)}
    assert varied.of(varied.grid()[0]).options.deepest == 3
    flag = next(flag for flag in varied.fields() if flag.name == "model.layers")
    assert (flag.default, flag.varied, flag.owner, get_args(flag.type)[0]) == ((1, 2), True, Model, int)


def test_fields_that_belong_together_are_checked_together(study):
    made = study(task=Anything(), vary={"task.length": [7, 11], "task.back": [5]})
    assert [each.overrides["task.back"] for each in made.grid()] == [5, 5]
    assert study(task=Anything()).changed({"task.back": 5, "task.length": 7}).task.back == 5


def test_presets_and_what_is_chosen(study):
    made = study(
        options=Wishes, presets={"laptop": {"seeds": 3, "options.deepest": 7}, "deep": {"options.deepest": 5}},
        configurations=lambda options: [Configuration(overrides={"model.layers": options.deepest})],
    )  # fmt: skip
    assert (made.chosen().seeds, made.chosen().options.deepest) == (3, 7)
    assert (made.chosen("deep").seeds, made.chosen("deep").grid()[0].label) == (2, "layers 5")
    assert made.chosen("laptop", {"seeds": 5, "model.width": 12}).seeds == 5
    fixed = study(options=Wishes, fixed=("task.length",), presets={"far": {"task.length": 5}})
    assert fixed.chosen("far").task.length == 5 and "task.length" not in {
        each.name for each in fixed.fields()
    }
    for refuses, field in ((made, "model.layers"), (fixed, "task.length")):
        with pytest.raises(UserError, match=f"{field}: expected a field that the study .* leaves open"):
            refuses.chosen(None, {field: 3})
    with pytest.raises(UserError, match=r"fixed: no field 'task\.lenth'; did you mean 'task\.length'"):
        study(fixed=("task.lenth",))
    with pytest.raises(
        UserError, match="preset: expected one of laptop, deep, found 'paper'; see hopscope studies"
    ):
        made.chosen("paper")
    assert study().chosen().seeds == 2
    with pytest.raises(UserError, match="preset: expected none, as the study has none, found 'paper'"):
        study().chosen("paper")


def test_configurations_of_the_options_take_the_place_of_vary(study):
    def configurations(options):
        for depth in range(1, options.deepest + 1):
            yield {
                "label": f"{depth} deep",
                "overrides": {"model.layers": depth, "init_seed": 17},
                "seeds": (3, 5),
            }

    made = study(options=Wishes, configurations=configurations).changed({"deepest": 3})
    assert [each.label for each in made.grid()] == ["1 deep", "2 deep", "3 deep"]
    assert made.seeds_of(made.grid()[0]) == (3, 5) and made.of(made.grid()[2]).model.layers == 3


def test_configurations_may_ask_for_the_study_as_it_is_run(study):
    def configurations(options, study, most=5):
        return [Configuration(overrides={"training.steps": study.seeds * most})]

    assert study(configurations=configurations).changed({"seeds": 3}).grid()[0].label == "steps 15"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("training.lr", "training.learning_rate"), ("training.wd", "training.weight_decay"),
        ("model.n_layers", "model.layers"), ("layers", "model.layers"), ("model.layerz", "model.layers"),
        ("training.batch", "training.batch_size"), ("task.lenght", "task.length"), ("seed", "seeds"),
        ("options.deep", "deepest"),
    ],
)  # fmt: skip
def test_an_unknown_field_gets_a_hint(study, name, meant):
    with pytest.raises(UserError, match=f"no field '{name}'; did you mean '{meant}'?"):
        study(options=Wishes).changed({name: 3})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"vary": {"model.layers": []}}, "at least one value of model.layers"),
        ({"vary": {"model.layers": [0]}}, "vary: 'layers 0': model.layers: expected greater than or equal to 1"),
        ({"vary": {"completion": ["gpt3"]}}, "completion: expected 'gpt2-base'"),
        ({"vary": {"seeds": [1, 2]}}, "expected a field of members, found 'seeds'; give it to the study"),
        ({"vary": {"model.layers": [1, 1]}}, "expected different labels, found 'layers 1' twice"),
        ({"vary": {"task.back": [5]}, "task": Anything()}, "back: expected less than length = 3, found 5"),
        ({"vary": {"model.layers": [1]}, "configurations": list}, "either vary or configurations"),
        ({"task": Anything}, "found the class Anything; write Anything()"),
        ({"model": None}, "model: expected one beside a task, found none"),
        ({"model": {"layers": 0}}, "model.layers: expected greater than or equal to 1, found 0"),
        ({"training": {"steps": "abc"}}, "training.steps: expected a valid integer"),
        ({"task": None, "vary": {"model.layers": [1]}}, "task: expected one beside vary, found none"),
        ({"task": None, "measures": [nothing]}, "expected one beside the measure 'nothing' of members, found none"),
        ({"nme": 3}, "no field 'nme'; did you mean 'name'?"),
        ({"name": "two words"}, "name: expected"),
        ({"seeds": 0}, "seeds: expected"),
        ({"seeds": 100_000}, "expected at most 10,000 seeds"),
        ({"figures": ["loss"]}, "figures"),
        ({"measures": [print]}, "expected measures, found print"),
        ({"presets": {"smoke": {"training.stepz": 3}}}, "preset 'smoke': no field 'training.stepz'; did you mean"),
        ({"options": create_model("Taken", __base__=Config, executor=(int, 3))}, "options: expected names"),
        ({"options": create_model("Taken", __base__=Config, held_out=(int, 3))}, "found 'held_out'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(study, fields, words):
    with pytest.raises(UserError) as error:
        study(**fields)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "function", "words"),
    [
        ("configurations", lambda options: [{"label": "a"}, {"label": "a"}], "different labels, found 'a' twice"),
        ("configurations", lambda options: [{"label": "a", "seeds": (1, 1)}], "different seeds from 0"),
        ("configurations", lambda options: [{"lable": "a"}], "no field 'lable'; did you mean 'label'?"),
        ("configurations", lambda options: [{"overrides": {"model.layers": 0}}], "'layers 0': model.layers: expected"),
        ("configurations", lambda options: 1 / 0, "found ZeroDivisionError"),
        ("configurations", lambda options: [], "expected at least one, found none"),
        ("claims", lambda options: ["A"], "expected values of hs.Claim, found 'A'"),
        ("claims", lambda options: [claim("A"), claim("A")], "different ids, found 'A' twice"),
        ("figures", lambda options: [3], "expected figures such as"),
        ("figures", lambda options: 3, "found TypeError"),
    ],
)  # fmt: skip
def test_what_a_function_of_the_options_gives_is_checked(study, field, function, words):
    made = study(**{field: function})
    ask = {"configurations": made.grid, "claims": made.all_claims, "figures": made.all_figures}[field]
    with pytest.raises(UserError) as error:
        ask()
    assert str(error.value).startswith(f"study 'echo': {field}: ") and words in str(error.value)


def test_a_study_that_trains_nothing_may_refuse_its_options():
    def refuse(options):
        if not options.words:
            raise UserError("words: expected at least one, found none")
        return ()

    made = Study(name="asks", options=Wishes, configurations=refuse)
    assert [flag.name for flag in made.fields()] == ["deepest", "words"]
    assert made.changed({"words": ("a",)}).grid() == []
    with pytest.raises(UserError, match="configurations: words: expected at least one, found none"):
        made.grid()


def test_studies_and_their_rooms_load_no_torch():
    rooms = "import hopscope.study.measuring, hopscope.study.measures, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", rooms], check=True, capture_output=True, text=True)
    assert not {"torch", "pandas", "pyarrow", "altair", "scipy"} & set(done.stdout.split())


WHOLE = {"name": "whole", "task": Anything(), "model": Model(), "training": Training(steps=3)}


def test_numbers_of_numpy_are_plain_and_sets_are_refused():
    made = Study(
        **{**WHOLE, "vary": {"model.heads": 2 ** np.arange(2), "training.learning_rate": [np.float32(0.5)]}}
    )
    assert json.dumps([each.overrides for each in made.grid()])
    with pytest.raises(UserError, match=r"vary: .*found a set for model.heads; write a list"):
        Study(**{**WHOLE, "vary": {"model.heads": {1, 2}}})


def test_a_field_of_the_options_that_is_fixed_is_no_flag():
    made = Study(**{**WHOLE, "options": Wishes(), "fixed": ("options.deepest",)})
    with pytest.raises(UserError, match=r"deepest: expected a field that the study .* leaves open"):
        made.chosen(None, {"deepest": 3})


def test_seeds_are_no_flag_where_every_configuration_has_its_own():
    cells = [Configuration(label="a", overrides={"model.layers": 2}, seeds=3)]
    made = Study(**{**WHOLE, "configurations": lambda options: cells})
    with pytest.raises(UserError, match=r"seeds: expected a field that the study 'whole' leaves open"):
        made.chosen(None, {"seeds": 1})
    own = {**WHOLE, "configurations": lambda options, study: [Configuration(label="a", seeds=study.seeds)]}
    assert Study(**own).chosen(None, {"seeds": 1}).grid()[0].seeds == 1
