"""The models of the benchmark: every planted model under a short name, with its true circuits; and folders of more.

The 126 planted models of chains and the 18 of permutation lookup are built when they are asked for.  Others come from
folders, as `hopscope zoo export` writes them: the weights (`hopscope.load_module` reads them), and `circuit.json`.
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from hopscope.circuits.built_in_tasks import task_of
from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.finders.edges import Head
from hopscope.models.export import export_module, load_module
from hopscope.models.interventions import Roles
from hopscope.models.member import MemberTransformer
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.runs import read_json, write_json
from hopscope.tasks.config import TaskConfig
from hopscope.tasks.retrieval import KINDS
from hopscope.zoo.permutations import PlantedPermutation, planted_permutations
from hopscope.zoo.planted import Planted, makers

CIRCUIT = "circuit.json"
"""File of an exported model that says what its circuits are."""


class HeadRow(Config):
    """Rows of one head that read something.

    Attributes:
        layer, head: from 0.
        rows: in words, such as `second 1`; empty where the plant does not name them.
        reads: what they read, in words; `None` where no words say it.
    """

    layer: int
    head: int
    rows: str = ""
    reads: str | None = None


class PlantedTruth(Config):
    """What is true of a planted model: the content of `circuit.json`.

    Attributes:
        name: short, of no other model.
        title: in words.
        family: models of one family do their task in the same way.
        grammar: whether the rules of Hopscope's own reader describe the circuit.
        task: what the model solves.
        circuits: every minimal circuit; several where there is redundancy.
    """

    format: Literal["hopscope-planted"] = "hopscope-planted"
    schema_version: Literal[1] = 1
    name: str
    title: str
    family: str
    grammar: bool
    task: TaskConfig
    circuits: tuple[tuple[HeadRow, ...], ...]


class ZooModel:
    """A model of the benchmark, built when somebody asks for it or for its truth.

    Attributes:
        name: short, as in its truth.
    """

    def __init__(self, name: str, make: Callable[[], tuple[PlantedTruth, Transformer]]):
        self.name, self._make = name, make

    @cached_property
    def _made(self) -> tuple[PlantedTruth, Transformer]:
        return self._make()

    @property
    def truth(self) -> PlantedTruth:
        """What is known of the model."""
        return self._made[0]

    def build(self) -> Transformer:
        """The model itself, one member."""
        return self._made[1]

    @property
    def task(self) -> Any:
        """The task that it solves, on the CPU."""
        return task_of(self.truth.task)

    @property
    def heads(self) -> tuple[frozenset[Head], ...]:
        """The heads of each minimal circuit."""
        return tuple(frozenset((row.layer, row.head) for row in circuit) for circuit in self.truth.circuits)


def zoo_models(folder: Path | None = None) -> Iterator[ZooModel]:
    """The planted models, always in the same order, then those of a folder in the order of their names.

    Raises:
        UserError: the folder holds no models, or a damaged one.
    """
    for number, make in enumerate(makers()):
        yield ZooModel(f"chain-{number:03}", partial(_chain, make, f"chain-{number:03}"))
    for number, plant in enumerate(planted_permutations()):
        yield ZooModel(f"permutation-{number:02}", partial(_permutation, plant, f"permutation-{number:02}"))
    if folder is not None:
        yield from models_in(folder)


def _chain(make: Callable[[], Planted], name: str) -> tuple[PlantedTruth, Transformer]:
    plant = make()
    return _of_chains(plant, name), plant.model


def _permutation(plant: PlantedPermutation, name: str) -> tuple[PlantedTruth, Transformer]:
    return _of_permutations(plant, name), plant.model


def _of_chains(plant: Planted, name: str) -> PlantedTruth:
    circuits = tuple(
        tuple(
            sorted(
                (
                    HeadRow(
                        layer=read.layer,
                        head=read.head,
                        rows=_words(read.rows),
                        reads=None if read.target is None else _words(read.target),
                    )
                    for read in circuit
                ),
                key=lambda row: (row.layer, row.head, row.rows),
            )
        )
        for circuit in plant.minimal
    )
    return PlantedTruth(
        name=name, title=plant.name, family=plant.name.partition(":")[0].partition(",")[0].split()[0],
        grammar=plant.explained or plant.uneven, task=plant.task, circuits=circuits,
    )  # fmt: skip


def _of_permutations(plant: PlantedPermutation, name: str) -> PlantedTruth:
    circuits = tuple(
        tuple(
            HeadRow(layer=read.layer, head=read.head, rows=read.rows, reads=read.target)
            for read in sorted(circuit)
        )
        for circuit in plant.minimal
    )
    return PlantedTruth(
        name=name, title=plant.name, family=f"permutation {plant.name.partition(':')[0]}", grammar=True,
        task=plant.task, circuits=circuits,
    )  # fmt: skip


def _words(roles: Roles) -> str:
    kind = KINDS[roles["kind"]]
    return f"{kind} {roles['step']}" if roles.get("step") else kind


# Folders.


def export_model(model: ZooModel, to: Path) -> Path:
    """Write a model's weights and truth into a folder of its name, and return that folder.

    Raises:
        UserError: something else is there.
    """
    folder = to / model.name
    export_module(model.build().member(0), folder, {"planted": model.name, "step": 0})
    write_json(folder / CIRCUIT, model.truth.model_dump(mode="json"))
    return folder


def models_in(folder: Path) -> Iterator[ZooModel]:
    """The exported models of a folder.

    Raises:
        UserError: it holds none, or a damaged one.
    """
    found = sorted(path.parent for path in folder.glob(f"*/{CIRCUIT}"))
    if not found:
        raise UserError(
            f"{folder}: expected folders with {CIRCUIT}, found none; write them with hopscope zoo export"
        )
    for each in found:
        record = read_json(each / CIRCUIT, "export the model again")
        try:
            truth = TypeAdapter(PlantedTruth).validate_python(record)
        except ValidationError as error:
            raise UserError(f"{each / CIRCUIT}: {validation_line(error)}; export the model again") from None
        yield ZooModel(truth.name, partial(_loaded, truth, each))


def _loaded(truth: PlantedTruth, folder: Path) -> tuple[PlantedTruth, Transformer]:
    return truth, ensemble_of(load_module(folder))


def ensemble_of(module: MemberTransformer) -> Transformer:
    """A plain module as a transformer with a member axis of 1."""
    parameters = Parameters(parameter_specs(module.config), 1)
    tables = ("embed.token.weight", "embed.position.weight")
    # The ensemble keeps linear maps as [in, out]; torch.nn.Linear keeps [out, in].
    parameters.load(
        {
            name: (tensor.T if tensor.ndim == 2 and name not in tables else tensor)[None]
            for name, tensor in module.state_dict().items()
        }
    )
    return Transformer(module.config, parameters)


def chosen(names: tuple[str, ...], models: list[ZooModel]) -> list[ZooModel]:
    """The models of these names; all if there are none.

    Raises:
        UserError: a name that no model has.
    """
    known = {model.name: model for model in models}
    for name in names:
        if name not in known:
            raise UserError(
                f"models: expected names that hopscope zoo list shows ({models[0].name} to {models[-1].name}), "
                f"found {name!r}"
            )
    return [known[name] for name in names] if names else models
