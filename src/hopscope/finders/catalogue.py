"""The models of the benchmark: every planted model under a short name, with its true circuits; and folders of more.

The 126 planted models of chains and the 18 of permutation lookup are built when they are asked for.  Others come from
folders, as `hopscope zoo export` writes them: the weights (`hopscope.load_module` reads them), and `circuit.json`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
from hopscope.zoo.planted import Planted, planted_models

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


@dataclass(frozen=True)
class ZooModel:
    """A model of the benchmark.

    Attributes:
        truth: what is known of it.
        build: makes the model, one member.
    """

    truth: PlantedTruth
    build: Callable[[], Transformer]

    @property
    def name(self) -> str:
        """Its short name."""
        return self.truth.name

    @property
    def task(self) -> Any:
        """The task, on the CPU."""
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
    for number, plant in enumerate(planted_models()):
        yield ZooModel(_of_chains(plant, f"chain-{number:03}"), partial(_itself, plant.model))
    for number, mapping in enumerate(planted_permutations()):
        yield ZooModel(_of_permutations(mapping, f"permutation-{number:02}"), partial(_itself, mapping.model))
    if folder is not None:
        yield from models_in(folder)


def _itself(model: Transformer) -> Transformer:
    return model


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
        yield ZooModel(truth, partial(_loaded, each))


def _loaded(folder: Path) -> Transformer:
    return ensemble_of(load_module(folder))


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
