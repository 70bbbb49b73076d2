"""A grid of configurations with seeds: what options have in common that name each configuration of their study."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from hopscope.config import Config
from hopscope.models.config import TransformerConfig
from hopscope.training.config import Cell, TrainingConfig, TrainJob, units_of


class Configuration(Hashable, Protocol):
    """One point of a grid."""

    @property
    def name(self) -> str:
        """The label of its units."""

    def overrides(self) -> dict[str, Any]:
        """For the run's list of members: everything that tells it from others."""


C = TypeVar("C", bound=Configuration)


class Grid(ABC, Generic[C]):
    """Options of a study whose configurations have tasks, models and numbers of seeds of their own."""

    if TYPE_CHECKING:
        members_per_unit: int

    @abstractmethod
    def asked(self) -> Iterable[tuple[C, int]]:
        """Every configuration with its number of seeds; of one that comes twice, the larger number counts."""

    @abstractmethod
    def task(self, configuration: C) -> Config:
        """The task of a configuration."""

    @abstractmethod
    def model(self, configuration: C) -> TransformerConfig:
        """The model of a configuration."""

    @abstractmethod
    def training(self, configuration: C) -> TrainingConfig:
        """The training of a configuration."""

    def grid(self) -> list[C]:
        """The configurations, each once; those of the sweeps last."""
        return list(self._seeds())

    def seeds_of(self, configuration: C) -> int:
        """Number of seeds of a configuration of the grid."""
        return self._seeds()[configuration]

    def _seeds(self) -> dict[C, int]:
        seeds: dict[C, int] = {}
        for configuration, count in self.asked():
            seeds[configuration] = max(count, seeds.get(configuration, 0))
        return seeds

    def jobs(self) -> list[TrainJob]:
        """Units in grid order; a configuration with many seeds is cut into several."""
        return units_of(
            Cell(
                each.name,
                range(seeds),
                each.overrides(),
                self.task(each),
                self.model(each),
                self.training(each),
                self.members_per_unit,
            )
            for each, seeds in self._seeds().items()
        )


def check_names(field: str, asked: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that a field of a study's options does not know.

    Raises:
        ValueError: `known` lacks one of the names.
    """
    for name in asked:
        if name not in known:
            raise ValueError(f"{field}: expected some of {', '.join(known)}, found {name!r}")
