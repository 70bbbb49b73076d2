"""Sections that the pages of both studies of chains have."""

from collections.abc import Iterable, Sequence

from hopscope.claims import JudgedClaim
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, chain_example, figure, section, table, text
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member, seeds_of
from hopscope.studies.chains.figures.circuits import MODE_WORDS
from hopscope.studies.chains.figures.gallery import LEFT_OUT
from hopscope.studies.chains.view import player
from hopscope.studies.followed import FollowedPath
from hopscope.studies.ledger import told
from hopscope.studies.numbers import DASH, PageNumbers
from hopscope.studies.words import counted, symbol

METRICS = "metrics.parquet"
SCHEMA_VERSION = 1
CHEAP, DEAR = 0.15, 0.5
"""Losses without a head that looks almost free, and without one that is needed."""

MOST_PLAYERS = 6
"""Members whose circuits the page's player holds."""


class Numbers(PageNumbers):
    """The numbers of a page on members."""

    def of(self, member: Member, value: float, key: str, style: str = ".3f") -> str:
        """A number of one member's reading."""
        return self.add(value, format(value, style), member.reading_file, key)

    def count(self, of: Iterable[bool], what: str, file: str = "units") -> str:
        """How many of some things something holds for."""
        number = sum(of)
        return self.add(number, str(number), file, f"number of {what}")


def write_page(
    run: RunFolder,
    title: str,
    subtitle: str,
    numbers: Numbers,
    ledger: Sequence[JudgedClaim],
    sections: Iterable[Block | None],
) -> None:
    """Write `story.json`."""
    run.write_json(
        "story.json",
        {
            "schema_version": SCHEMA_VERSION,
            "title": title,
            "subtitle": subtitle,
            "numbers": numbers.entries,
            "claims": told(ledger),
            "sections": [each for each in sections if each is not None],
        },
    )


def task_section(config: ChainsConfig, numbers: Numbers) -> Block:
    """What is asked, and who answers."""
    plateau = numbers.add(
        config.task().plateau, f"{config.task().plateau:g}", "config.json", "1 - 1/config.chains"
    )
    mlp = "with MLPs" if config.mlp_ratio else "without MLPs"
    return section(
        "task",
        "The task, and the models",
        text(
            f"A sample holds {config.chains} chains of symbols, {symbol(0)} → … → {symbol(config.steps)}. Each step "
            "of a chain is shown once, as a pair of two symbols; the pairs of all chains are mixed, the "
            "last step comes first. At the end stand the first symbols, and for each the model must say what its "
            "chain leads to: every symbol of it. Symbols are new random vectors in every sample."
        ),
        chain_example(),
        text(
            f"The models have {counted(config.layers, 'layer')} of {counted(config.heads, 'attention head')}, {mlp}. "
            f"A model that knows which symbols a step could lead to, but not which of them, pays {plateau} for it: "
            "the plateau. But for the training loss, everything was measured on samples that no training has drawn."
        ),
    )


def verdict_section(config: ChainsConfig) -> Block:
    """The ledger."""
    small = (
        " This run is smaller than the paper's, so it can neither reproduce nor refute what the paper says of its "
        "own; inconclusive then means “too small to say”, and the words tell what the runs showed."
        if config.departures
        else ""
    )
    return section(
        "verdicts",
        "What the claims of the paper come to",
        text(
            "Each row is a statement of the paper, with the threshold that was fixed before the run. Nobody types a "
            "verdict in: it follows from the runs by one rule." + small
        ),
        {"kind": "verdicts"},
    )


def circuit_section(config: ChainsConfig, members: Sequence[Member], numbers: Numbers) -> Block:
    """The player, and what was read of every member."""
    read = [member for member in members if member.paths]
    learned = numbers.count((member.learned_all for member in members), "members that learned every step")
    explained = numbers.count(
        (member.learned_all and member.was_read for member in members), "of these, members that were read"
    )
    blocks = [
        text(
            "A circuit is what is left of a model when as many rows of its attention matrices as possible read "
            "nothing in particular, and every other row follows a simple rule, such as “the second token of a pair "
            "reads the first”. It is found by a search, then proven: the model is run with nothing but these rules "
            f"for its attention, on fresh samples. Of {len(members)} models, {learned} learned the whole chain, and "
            f"{explained} of those were read."
        )
    ]
    if read:
        blocks.append(
            player(
                config,
                read[:MOST_PLAYERS],
                "The circuits, drawn",
                "",
            )
        )
    blocks.append(
        table(
            [
                "model",
                "learned",
                "verdict",
                "heads",
                "paths",
                "circuits found",
                "loss",
                "rules",
                "recomputed",
                "random",
            ],
            [_row(member, numbers) for member in members],
            "Every model. Heads and paths of its smallest circuit; how many different minimal circuits the searches "
            "found; then losses over the learned symbols: of the model, of the circuit by its rules, of the circuit "
            "with its own attention, and the mean of random circuits of the same size.",
        )
    )
    return section("circuits", "Which heads do it", *blocks)


def _row(member: Member, numbers: Numbers) -> list[str]:
    learned = ", ".join(map(symbol, member.learned)) or "nothing"
    reading = member.reading
    if not reading["paths"]:
        return [member.name, learned, reading["verdict"], *[DASH] * 7]
    loss = reading["loss"]
    return [
        member.name,
        learned,
        reading["verdict"],
        numbers.of(member, len(member.heads), "heads of paths", "d"),
        numbers.of(member, len(reading["paths"]), "number of paths", "d"),
        numbers.of(member, len(reading["minimal_circuits"]), "number of minimal_circuits", "d"),
        *(
            numbers.of(member, loss[key], f"loss.{key}")
            for key in ("full", "rules", "recomputed", "random_circuits")
        ),
    ]


def reads_section(members: Sequence[Member], numbers: Numbers) -> Block | None:
    """Which seeds do which reads."""
    found = [member for member in members if member.was_read and member.paths]
    if not found:
        return None
    different = len({member.circuit for member in found})
    kinds = numbers.add(different, str(different), "units", "number of different circuits by their reads")
    return section(
        "reads",
        "Do seeds agree?",
        text(
            f"{counted(len(found), 'model')} that were read have {kinds} different "
            f"{'circuit' if different == 1 else 'circuits'}: two are the same if they do the same reads, one after "
            "another, in whatever heads."
        ),
        figure(
            "reads",
            "Reads against models: each cell names the heads (layer.head, counted from 0) that do this read, darker "
            "the more of the attention of one of them lies there.",
            "Heat map of the reads of every model, labelled by layer and head.",
        ),
    )


def modes_section(members: Sequence[Member], numbers: Numbers) -> Block | None:
    """What a path is worth, in three modes."""
    found = [member for member in members if member.was_read and member.paths]
    if not found:
        return None
    return section(
        "modes",
        "What is a path worth? It depends on how one asks",
        text(
            "Each path was taken away once more, in three modes. In mode “rules”, the paper's, every attention matrix "
            "is given, and the path's rows read uniformly: only what the path hands on as a value is missed. In mode "
            "“clean” all other patterns are those of the intact model. In mode “recomputed” everything later is "
            "computed from what is left, so that a path which serves to find things, whose output later heads use as "
            "keys or queries, is missed as well.\n\nThe first useful head shows the difference. What it writes is what "
            "later heads look for: given their patterns they find it all the same, and the head looks almost free. "
            + _free_words(found, numbers)
        ),
        table(
            [
                "model",
                "first useful head",
                "model's loss",
                *(words.split(":")[0] for words in MODE_WORDS.values()),
            ],
            [_first(member, numbers) for member in found if member.first_reads],
            "Loss over the learned symbols without the costliest read of the first head that reads a single token, by "
            "mode.",
        ),
        figure(
            "modes",
            "Loss without each path, by mode. Dashed: the plateau.",
            "Dot plots of the loss without each path in three modes, one panel for each model.",
        ),
    )


def _free_words(found: Sequence[Member], numbers: Numbers) -> str:
    """In how many models the first useful head looks free where patterns are given, and is not where they follow."""
    firsts = [_costliest(member) for member in found if member.first_reads]
    free = [path for path in firsts if path.removed["rules"] < CHEAP]
    dear = [path for path in free if path.removed["recomputed"] >= DEAR]
    few = numbers.count(
        (path in free for path in firsts), f"first heads without which the loss by rules is under {CHEAP}"
    )
    many = numbers.count(
        (path in dear for path in free), f"of these, with a recomputed loss of {DEAR} or more"
    )
    return (
        f"In {few} of {counted(len(firsts), 'model')} the loss without it stays under {CHEAP} by the rules; in {many} "
        f"of these it is {DEAR} or more where the rest follows."
    )


def _costliest(member: Member) -> FollowedPath:
    """The costliest read of a single token by the first head that does any."""
    return max(member.first_reads, key=lambda path: path.removed["recomputed"])


def _first(member: Member, numbers: Numbers) -> list[str]:
    path = _costliest(member)
    place = f"paths of layer {path.layer}, head {path.head}, {path.query}"
    return [
        member.name,
        path.name,
        numbers.of(member, member.reading["loss"]["full"], "loss.full"),
        *(numbers.of(member, path.removed[mode], f"{place}: loss_if_removed.{mode}") for mode in MODE_WORDS),
    ]


def controls_section(members: Sequence[Member], numbers: Numbers) -> Block | None:
    """Is it more than chance?"""
    found = [member for member in members if member.paths]
    if not found:
        return None
    independent = seeds_of(found)
    random = [member.reading["loss"]["random_circuits"] for member in independent]
    rules = [member.reading["loss"]["rules"] for member in independent]
    means = numbers.estimated(random, "loss.random_circuits over members", "units")
    own = numbers.estimated(rules, "loss.rules over members", "units")
    unread = [member for member in members if member.learned and not member.was_read]
    blocks = [
        text(
            f"Circuits by their rules lose {own}; random circuits of the same size, {means} (means over independent "
            "seeds with 95 % intervals). Everything but the circuit, as it is, should know nothing."
        ),
        figure(
            "controls",
            "Loss over the learned symbols. The line reaches from the best to the worst of the random circuits.",
            "Dot plot of the losses of model, circuit, complement and random circuits, one row for each model.",
        ),
    ]
    if unread:
        blocks.append(
            table(
                ["model", "why it was not read", "its best circuit by rules"],
                [
                    [member.name, member.reading["verdict"], "; ".join(path.name for path in member.paths)]
                    for member in unread
                ],
                "Models that learned something and were not read, with the reason.",
            )
        )
    return section("controls", "Is it more than chance?", *blocks)


def gallery_section(config: ChainsConfig, members: Sequence[Member]) -> Block:
    """All heads' maps."""
    shown = ", ".join(member.name for member in members[: config.galleries])
    return section(
        "gallery",
        "All attention maps",
        figure(
            "gallery",
            f"Attention of every head (layer.head) at the end of training on one example sequence, {shown}: queries "
            f"down, keys across, in the order of the sequence. Attention under {LEFT_OUT} is left white.",
            "Heat maps of attention, one for each head and model.",
        ),
    )
