"""A study as a value: its grid, its fields, and what it refuses."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

import hopscope as hs
from hopscope.cli.run import RunOptions
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.studies.program import Program
from hopscope.studies.study import OF_THE_COMMAND, Configuration


class Echo(hs.Task):
    """Repeat the first token."""

    length: int = 3
    values: int = 5

    def shape(self) -> hs.Shape:
        return hs.Shape(
            inputs="tokens",
            input_size=self.values,
            positions=self.length,
            readout=(self.length - 1,),
            output_size=self.values,
        )

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", self.values, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


class Wishes(Config):
    """Options of a study."""

    deepest: int = 2


def study(**fields: object) -> hs.Study:
    usual = {"name": "echo", "task": Echo(), "model": hs.Model(width=8), "training": hs.Training(steps=7)}
    return hs.Study(**{**usual, **fields})


@pytest.mark.parametrize("name", ["held_out", "seeds", "preset", "executor", "model", "help"])
def test_an_option_with_a_name_that_is_taken_is_refused(name: str) -> None:
    taken = create_model("Taken", __base__=Config, **{name: (int, 3)})
    with pytest.raises(UserError, match=f"study 'echo': options: expected names .* found '{name}'"):
        study(options=taken())


def test_every_flag_of_the_command_is_taken() -> None:
    flags = {each.name for each in dataclasses.fields(RunOptions)}
    assert flags | {"help"} == set(OF_THE_COMMAND)


def test_a_field_called_keys_can_be_changed() -> None:
    class Keyed(Echo):
        keys: int = 7

    assert study(task=Keyed()).changed({"task.keys": 11}).task == Keyed(keys=11)


def test_an_error_of_the_function_of_configurations_is_said_once() -> None:
    def refuse(options: object) -> list[Configuration]:
        raise UserError("depth: expected at most 7, found 11")

    with pytest.raises(UserError) as raised:
        study(configurations=refuse).grid()
    assert str(raised.value) == "study 'echo': configurations: depth: expected at most 7, found 11"


def test_the_grid_is_the_product_in_order() -> None:
    grid = study(vary={"model.layers": [1, 2], "task.length": [3, 5, 7]}).grid()
    cells = [(each.overrides["model.layers"], each.overrides["task.length"]) for each in grid]
    assert cells == [(1, 3), (1, 5), (1, 7), (2, 3), (2, 5), (2, 7)]
    assert grid[1].label == "layers 1, length 5"


def test_without_variation_there_is_one_configuration_named_after_the_study() -> None:
    (only,) = study().grid()
    assert (only.label, only.overrides) == ("echo", {})


def test_fields_of_one_name_are_told_apart_by_their_section() -> None:
    class Wide(Echo):
        width: int = 11

    grid = study(task=Wide(), vary={"model.width": [8], "task.width": [11, 13]}).grid()
    assert [each.label for each in grid] == ["model.width 8, task.width 11", "model.width 8, task.width 13"]


@given(layers=st.integers(1, 5), steps=st.integers(1, 50), seeds=st.integers(1, 9))
def test_changed_fields_are_there_and_nothing_else_changes(layers: int, steps: int, seeds: int) -> None:
    before = study(vary={"task.length": [3, 5]})
    after = before.changed({"model.layers": layers, "training.steps": steps, "seeds": seeds})
    assert (after.model.layers, after.training.steps, after.seeds) == (layers, steps, seeds)
    assert after.task == before.task and after.vary == before.vary
    assert before.model.layers == 1


def test_a_varied_field_is_replaced_as_a_list_or_pinned() -> None:
    varied = study(vary={"model.layers": [1, 2]})
    assert varied.changed({"model.layers": [3, 4, 5]}).vary == {"model.layers": (3, 4, 5)}
    assert varied.changed({"model.layers": 3}).vary == {"model.layers": (3,)}


def test_configurations_of_the_options_take_the_place_of_vary() -> None:
    made = study(
        options=Wishes,
        configurations=lambda options: [
            hs.Configuration(label=f"{n} deep", overrides={"model.layers": n, "init_seed": 17}, seeds=(3, 5))
            for n in range(1, options.deepest + 1)
        ],
    )
    assert [each.label for each in made.grid()] == ["1 deep", "2 deep"]
    assert made.seeds_of(made.grid()[0]) == (3, 5)
    assert len(made.changed({"deepest": 3}).grid()) == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"vary": {"model.layerz": [1]}}, "no field 'model.layerz'; did you mean 'model.layers'?"),
        ({"vary": {"model.layers": []}}, "at least one value of model.layers"),
        ({"vary": {"model.layers": [0]}}, "model.layers: expected greater than or equal to 1, found 0"),
        ({"vary": {"layers": [1]}}, "no field 'layers'; did you mean 'model.layers'?"),
        ({"task": Echo}, "found the class Echo; write Echo()"),
        ({"model": None}, "model: expected one beside a task, found none"),
        ({"nme": 3}, "no field 'nme'; did you mean 'name'?"),
        ({"name": "two words"}, "name: expected"),
        ({"seeds": 0}, "seeds: expected"),
        (
            {"vary": {"model.layers": [1]}, "configurations": lambda options: []},
            "either vary or configurations",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(fields: dict[str, object], words: str) -> None:
    with pytest.raises(hs.UserError) as error:
        study(**fields)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_field_that_every_configuration_gives_itself_is_refused() -> None:
    made = study(
        configurations=lambda options: [
            hs.Configuration(label="a", overrides={"model.layers": 2, "model.width": 8}),
            hs.Configuration(label="b", overrides={"model.layers": 3}),
        ]
    )
    program = Program(made)
    assert program.configured(None, {"model.width": 12}).model["width"] == 12
    with pytest.raises(
        UserError, match=r"model.layers: .* leave open, found one that every configuration gives"
    ):
        program.configured(None, {"model.layers": 5})


def test_configurations_must_have_different_labels() -> None:
    twice = study(configurations=lambda options: [Configuration(label="a"), Configuration(label="a")])
    with pytest.raises(hs.UserError, match="different labels"):
        twice.grid()


def test_claims_must_have_different_ids() -> None:
    claim = hs.Claim(
        id="A", statement="s", source="x", protocol="p", value=lambda evidence: [], must=hs.at_least(0.0)
    )
    with pytest.raises(hs.UserError, match="'A' twice"):
        study(claims=[claim, claim]).all_claims()


def test_a_study_can_train_nothing() -> None:
    assert hs.Study(name="only-questions").task is None


def test_fields_that_belong_together_are_checked_together() -> None:
    class Copy(Echo):
        back: int = 1

        def model_post_init(self, context: object) -> None:
            if self.back >= self.length:
                raise ValueError(f"back: expected less than length = {self.length}, found {self.back}")

    made = study(task=Copy(), vary={"task.length": [7, 11], "task.back": [5]})
    assert [each.overrides["task.back"] for each in made.grid()] == [5, 5]
    assert study(task=Copy()).changed({"task.back": 5, "task.length": 7}).task.back == 5
    with pytest.raises(hs.UserError, match="back: expected less than length = 3, found 5"):
        study(task=Copy(), vary={"task.back": [5]})


def test_a_misspelt_field_of_a_preset_names_the_preset() -> None:
    with pytest.raises(hs.UserError) as error:
        study(presets={"smoke": {"training.stepz": 3}})
    assert "preset 'smoke': " in str(
        error.value
    ) and "no field 'training.stepz'; did you mean 'training.steps'?" in str(error.value)


def test_seeds_and_figures_are_checked() -> None:
    for seeds in (0, (1, 1), (-1,)):
        with pytest.raises(hs.UserError, match="seeds"):
            study(configurations=lambda options, kept=seeds: [{"label": "a", "seeds": kept}]).grid()
    with pytest.raises(hs.UserError, match="ZeroDivisionError"):
        study(configurations=lambda options: 1 / 0).grid()
    with pytest.raises(hs.UserError, match="figures such as"):
        study(figures=["loss"])
