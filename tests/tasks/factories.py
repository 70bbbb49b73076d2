"""Every task that must pass the contract of `test_contract.py`: name → how to make it.  Later tasks join here."""

from collections.abc import Callable

from hopscope.tasks.batch import Task
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask


def _permutation(**changes) -> Callable[[], Task]:
    return lambda: PermutationTask(PermutationConfig(**changes))


FACTORIES: dict[str, Callable[[], Task]] = {
    "permutation V=3": _permutation(values=3, split_seed=2),
    "permutation V=5 with repeats": _permutation(values=5, repeat_ratio=0.3),
    "permutation V=7, chosen slots": _permutation(
        values=7, repeat_ratio=0.7, repeat_slots=(3, 5), repeat_sources=(2, 4)
    ),
    "permutation V=11, never listed": _permutation(values=11, repeat_ratio=0.5, split_seed=13),
}
