"""Every task that must pass the contract of `test_contract.py`: name → how to make it.  Later tasks join here."""

from collections.abc import Callable

from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, PermutationConfig, RetrievalConfig
from hopscope.tasks.device import DeviceTask
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask


def _permutation(**changes) -> Callable[[], DeviceTask]:
    return lambda: PermutationTask(PermutationConfig(**changes))


def _retrieval(**changes) -> Callable[[], DeviceTask]:
    return lambda: RetrievalTask(RetrievalConfig(**changes))


def _conditional(graph: str | None = None, **changes) -> Callable[[], DeviceTask]:
    nodes = {} if graph is None else {"nodes": nodes_of(graph)}
    return lambda: ConditionalTask(ConditionalConfig(**nodes, **changes))


def nodes_of(graph: str) -> tuple[dict[str, object], ...]:
    """Nodes of a graph as it is written: `"a x(a) z(a,x)"`."""
    parts = [part.removesuffix(")").partition("(") for part in graph.split()]
    return tuple({"name": name, "parents": tuple(filter(None, keys.split(",")))} for name, _, keys in parts)


# Paper, formulations F4 ("g = f. a = 2. g(a) = ?") and F5 (a person, their relative and where these live).
FUNCTIONS = "g a f(g) n(a) value(f,n)"
RELATIVES = "person job(person) relation(job) relative(person,relation) place(relative)"

FACTORIES: dict[str, Callable[[], DeviceTask]] = {
    "permutation V=3": _permutation(values=3, split_seed=2),
    "permutation V=5 with repeats": _permutation(values=5, repeat_ratio=0.3),
    "permutation V=7, chosen slots": _permutation(
        values=7, repeat_ratio=0.7, repeat_slots=(3, 5), repeat_sources=(2, 4)
    ),
    "permutation V=11, never listed": _permutation(values=11, repeat_ratio=0.5, split_seed=13),
    "retrieval N=3 D=1": _retrieval(chains=3, steps=1, symbol_dim=2),
    "retrieval N=5 D=3, pair codes, shallowest first": _retrieval(
        chains=5, steps=3, symbol_dim=2, position="pair", order="shallowest-first", frequencies="geometric"
    ),
    "retrieval N=3 D=5, random order, x_D only": _retrieval(
        chains=3, steps=5, symbol_dim=6, order="random", targets="last"
    ),
    "retrieval N=7 D=2, a pool, two steps of three": _retrieval(
        chains=7, steps=3, symbol_dim=2, order=(2, 3, 1), targets=(1, 3), pool=31
    ),
    "retrieval N=3 D=2, scheduled": _retrieval(
        chains=3, steps=2, symbol_dim=4, targets=(1,), schedule=((7, "last"), (29, "ic")), pool=1009
    ),
    "retrieval N=3 D=2, weighed": _retrieval(chains=3, steps=2, symbol_dim=4, shares=(0.25, 1.0)),
    "retrieval N=2 D=3, random subsets": _retrieval(
        chains=2, steps=3, symbol_dim=2, shares=(0.5, 0.25, 1.0), emphasis="subsets"
    ),
    "retrieval N=2 D=3, one of two steps": _retrieval(
        chains=2, steps=3, symbol_dim=2, targets=(3, 1), shares=(0.625, 0.375), emphasis="one", pool=31
    ),
    "conditional, the paper's": _conditional(chains=3, symbol_dim=2),
    "conditional, functions, random order, pair codes": _conditional(
        FUNCTIONS, chains=3, symbol_dim=2, order="random", position="pair"
    ),
    "conditional, relatives, a pool, chosen order and targets": _conditional(
        RELATIVES,
        chains=2,
        symbol_dim=4,
        order=("relative", "job", "place", "relation"),
        targets=("place", "job"),
        pool=31,
    ),
    "conditional, three keys, pair codes": _conditional(
        "a b x(a) w(a,x,b)", chains=2, symbol_dim=2, order="shallowest-first", position="pair", targets="last"
    ),
    "conditional, a path": _conditional("p q(p) r(q)", chains=5, symbol_dim=2, frequencies="geometric"),
}
