"""Decoys of planted models: heads that attend as if they took part, and write what nobody reads."""

from dataclasses import dataclass, replace

from hopscope.circuits.planted_recipes import Recipe, first_of, query, second_of
from hopscope.models.hand_built import Copy, HeadDesign
from hopscope.models.interventions import Roles
from hopscope.models.witness_plans import MATE, OWN_CODE, OWN_SYMBOL
from hopscope.tasks.retrieval import FIRST, SECOND

_UNREAD = 200
"""First of the slots that nobody reads, one for each decoy; recipes use smaller numbers."""

_DULL = ("uniform", "identity")


@dataclass(frozen=True)
class PlantedDecoy:
    """A head whose output nobody reads.

    Attributes:
        layer, head: where it is.
        attends: what it attends to: `"uniform"` (all visible keys alike), `"identity"` (the row itself), or the name of
            a relation of the batch.
        rows: roles of the rows that do so; those without a partner under the relation excepted.
    """

    layer: int
    head: int
    attends: str
    rows: Roles

    @property
    def sharp(self) -> bool:
        """Whether it attends to another token in a role, as true heads do."""
        return self.attends not in _DULL


_Sharp = tuple[str, Roles, HeadDesign]
"""What a decoy attends to, at which rows, and how."""


def decoy(
    recipe: Recipe, at: tuple[int, ...], place: tuple[int, int], number: int
) -> tuple[PlantedDecoy, HeadDesign]:
    """Decoy number `number` of a model.  Every third is not sharp; the others vary as far as a layer permits.

    Args:
        recipe: what the model does.
        at: layers of the model in which the layers of the recipe are.
        place: layer and head of the decoy.
        number: which decoy it is.
    """
    layer, head = place
    if number % 3 == 2:
        attends: str = "uniform" if (number + recipe.task.steps) % 2 else "identity"
        rows: Roles = {}
        design = _dull(attends)
    else:
        kinds = _masked(recipe, at, layer) if recipe.mask == "causal" else _unmasked(recipe)
        # Layer and steps are counted in, so that models of few decoys differ in them.
        attends, rows, design = kinds[(2 * number + 3 * layer + recipe.task.steps) % len(kinds)]
    copies = (Copy(_UNREAD + 2 * number, OWN_SYMBOL, _loudness(attends, layer)),)
    return PlantedDecoy(layer, head, attends, rows), replace(design, copies=copies)


def _dull(attends: str) -> HeadDesign:
    if attends == "uniform":
        return HeadDesign(None, ())
    return HeadDesign((OWN_CODE, OWN_CODE), (), "other symbol")


def _loudness(attends: str, layer: int) -> float:
    """Weight of what a decoy writes: a mean of symbols is small; that of squares, from layer 1 on, is not."""
    if attends == "uniform":
        return 2.0 if layer else 4.0
    return 1.0


def _masked(recipe: Recipe, at: tuple[int, ...], layer: int) -> list[_Sharp]:
    """What can be read in a layer of a model with the causal mask."""
    deep = recipe.task.steps > 1
    if layer >= at[-1] and recipe.last_hop is not None and deep:
        # The best of decoys: where the true one reads, or would if it did not read a copy.
        slot, hop = recipe.last_hop
        return [(f"hop_{hop}", query(), HeadDesign((slot, MATE), (), "unpaired"))]
    kinds: list[_Sharp] = []
    if layer > at[0]:
        kinds.append(("hop_1", query(), HeadDesign((OWN_SYMBOL, MATE), (), "unpaired")))
        kinds.append(("same_symbol", query(), HeadDesign((OWN_SYMBOL, OWN_SYMBOL), (), "own code")))
    if layer > at[0] and deep:
        previous = HeadDesign((OWN_CODE, OWN_CODE), (), "unpaired", -1)
        kinds.append(("previous", first_of(1), previous))
        kinds.append(("hop_1", second_of(1), HeadDesign((OWN_SYMBOL, MATE), (), "unpaired")))
    mate = HeadDesign((OWN_CODE, OWN_CODE), (), "own symbol")
    return [*kinds, ("pair_mate", {"kind": SECOND}, mate)]


def _unmasked(recipe: Recipe) -> list[_Sharp]:
    """What can be read in any layer of a model without a mask."""
    mate = HeadDesign((OWN_CODE, OWN_CODE), (), "own symbol")
    same = HeadDesign((OWN_SYMBOL, OWN_SYMBOL), (), "own code")
    deeper: list[_Sharp] = [("same_symbol", second_of(1), same)] if recipe.task.steps > 1 else []
    return [
        ("same_symbol", query(), same),
        ("pair_mate", {"kind": FIRST}, mate),
        ("pair_mate", {"kind": SECOND}, mate),
        *deeper,
    ]
