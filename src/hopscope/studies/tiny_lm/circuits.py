"""The section of the page on the circuits of small language models, and how they formed."""

import math
from collections.abc import Sequence

from hopscope.circuits.config import READ
from hopscope.studies.blocks import Block, section, table, text
from hopscope.studies.followed import Followed, player
from hopscope.studies.numbers import DASH, PageNumbers
from hopscope.studies.tiny_lm.config import TinyLmConfig
from hopscope.studies.tiny_lm.evidence import Member
from hopscope.studies.words import counted

MOST_PLAYERS = 6
"""Members whose circuits the page's player holds."""


def circuit_section(config: TinyLmConfig, members: Sequence[Member], numbers: PageNumbers) -> Block:
    """What was read of every member, how it formed, and the player."""
    learned = [member for member in members if member.reading["learned"]]
    explained = [member for member in learned if member.reading["verdict"] == READ]
    words = (
        "A circuit is what is left of a model when as many rows of its attention matrices as possible read nothing in "
        "particular, and every other row follows a simple rule. It is found by a search over questions of all depths "
        "at once, then proven on held-out ones: the model is run with nothing but these rules for its attention. "
        f"{counted(len(learned), 'model')} of {len(members)} learned a depth, and "
        f"{_count(numbers, len(explained), 'models that learned a depth and were read')} of these were read. The lines "
        "of the first round, which tell values, have number 1; of a line, given and found are its left and its right "
        "side; words of the question have the number of the round before them."
    )
    shown = [member for member in members if member.paths][:MOST_PLAYERS]
    drawn = (
        [player("The circuits, drawn", "", [followed(config, member) for member in shown])] if shown else []
    )
    return section(
        "circuits",
        "Which heads do it, and when they formed",
        text(words),
        *drawn,
        table(
            ["model", "learned", "verdict", "paths", "loss", "rules", "recomputed", "random"],
            [_row(member, numbers) for member in members],
            "Every model. Losses in nats over held-out questions of the depths that it learned: of the model, of its "
            "circuit by its rules, of the circuit with its own attention, and the mean of random circuits of "
            "the same size.",
        ),
        table(
            ["model", "head", "reads", "needed first for", "formed at step"],
            [cells for member in explained for cells in _formed(member, numbers)],
            "The paths of the circuits that were read, but for mean maps, which name nothing that is read. Needed "
            "first for: the smallest depth that is lost without the read. Formed: when the mean attention of its rows "
            "on what they read, over 32 held-out questions of each depth, rose over one half, interpolated between "
            "checkpoints.",
        ),
    )


def followed(config: TinyLmConfig, member: Member) -> Followed:
    """A member's circuit through training."""
    named = {"given 1", *(path.query for path in member.paths), *_targets(member)}
    return Followed(
        of=member,
        step=config.training_steps,
        layers=config.layers,
        heads=config.heads,
        partial={f"D = {depth}": curve for depth, curve in member.loss.items()},
        plateau=math.log(config.chains),
        rows=[row for row in member.rows if row in named],
    )


def _targets(member: Member) -> set[str]:
    both = (target for path in member.paths for target in path.target.split(" + "))
    return {target.removeprefix("all ") for target in both}


def _row(member: Member, numbers: PageNumbers) -> list[str]:
    reading = member.reading
    learned = ", ".join(reading["learned"]) or "nothing"
    if not reading["paths"]:
        return [member.name, learned, reading["verdict"], *[DASH] * 5]
    file = member.reading_file
    paths = len(reading["paths"])
    losses = (
        numbers.add(reading["loss"][key], f"{reading['loss'][key]:.3f}", file, f"loss.{key}")
        for key in ("full", "rules", "recomputed", "random_circuits")
    )
    said = numbers.add(paths, str(paths), file, "number of paths")
    return [member.name, learned, reading["verdict"], said, *losses]


def _formed(member: Member, numbers: PageNumbers) -> list[list[str]]:
    rows = []
    for path in member.paths:
        time = member.formed(path).time
        what = f"attention of {path.name} reaches 0.5, step"
        at = "never" if time is None else numbers.add(time, f"{time:,.0f}", member.formation_file, what)
        needed = DASH if path.needed_for is None else f"D = {path.needed_for}"
        rows.append([member.name, path.place, path.read, needed, at])
    return rows


def _count(numbers: PageNumbers, found: int, what: str) -> str:
    return numbers.add(found, str(found), "units", f"number of {what}")
