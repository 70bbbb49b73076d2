"""How recall works: causal tests, what the feed-forward network does, and what each head is for."""

from collections import Counter
from collections.abc import Mapping

from hopscope.probes.spreads import MISSING
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.numbers import DASH
from hopscope.studies.permutation.claims import RECALLING, REPLACEMENTS
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.story.learning import base_only
from hopscope.studies.permutation.story.numbers import Numbers

STAYS, MOVES = "stays y_j", "becomes y_k"

SWAPS = (
    ("position_code_swap", "position codes of x_j and another x_k exchanged, as values only", STAYS, MOVES),
    ("y_swap", "y_j and y_k exchanged, as values only", MOVES, MOVES),
    ("attention_swap", "attention on x_j and x_k exchanged", STAYS, MOVES),
)
INTERCHANGES = (
    ("head_interchange", "all heads' output from the same pairs with x_k repeated", STAYS, MOVES),
    ("mlp_interchange", "feed-forward output from the same pairs with x_k repeated", MOVES, MOVES),
)
"""Test, what it does, what the presentation's account expects, what the pointer account expects."""


def mechanism_section(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block | None:
    """The causal battery on the configuration that recalls."""
    found = evidence.get(RECALLING)
    if found is None or not found.has("battery"):
        return None
    return section(
        "mechanism",
        "How recall works, tested by intervention",
        text(
            "The presentation's account: a head binds each pair by letting y attend to itself and x to the y "
            "before it, and the feed-forward network recognises the repeated x and looks its y up. The pointer "
            "account: at the last position one head looks at the earlier copy x_j and brings back its position "
            "code; a head that weighs the slots unequally brings back a sum of all y; the feed-forward network "
            "uses the first to pick from the second. Every test below changes one thing inside the network and "
            "watches the answer y_j."
        ),
        text(_rows_words(found, numbers)),
        _swap_table(found, numbers),
        *_pointer_words(found, numbers),
        figure(
            "battery",
            "Share of answers that become y_k, or stay y_j, under each test; hollow: the control. Each point is "
            "a seed.",
            "Dot plot of the outcome of each causal test with its control.",
        ),
        _ablation_table(found, numbers),
        figure(
            "ablation",
            "Recall and elimination with the feed-forward network's output replaced, and with equal weights on "
            "all y.",
            "Dot plot of recall and elimination under ablations.",
        ),
        *_decoding_blocks(found, numbers),
        *_variants(evidence, numbers),
    )


def _rows_words(found: Evidence, numbers: Numbers) -> str:
    """The exact test: patterns of the earlier rows."""
    earlier = "earlier_rows.earlier_rows_change.random.repeats"
    parts = [
        numbers.range(found, f"earlier_rows.last_row_change.{replacement}.{kind}", "battery", percent=False)
        for replacement in REPLACEMENTS
        for kind in ("repeats", "plain")
    ]
    distinct = ", ".join(parts)
    return (
        "First the part of the story that is about the other positions. In one layer the last position reads the "
        "other positions' embeddings, not what they computed, so what they attend to cannot reach its answer. "
        "Largest change of any logit at the last position when the attention patterns of all earlier positions are "
        f"replaced (uniform, identity, random; with and without a repeat): {distinct}. The same replacement changes "
        f"the earlier positions' own logits by up to {numbers.range(found, earlier, 'battery', percent=False)}, so "
        "something was done; and at the last position itself it leaves "
        f"{numbers.range(found, 'earlier_rows.last_row_replaced.uniform.recall', 'battery')} of recall. The local "
        "binding that the heat map shows is there, and nothing uses it."
    )


def _swap_table(found: Evidence, numbers: Numbers) -> Block:
    rows = [
        ["nothing (clean)", "", "", DASH, numbers.estimate(found, "clean.recall", "battery"), DASH,
         numbers.estimate(found, "clean.elimination", "battery")]
    ]  # fmt: skip
    for test, *told in SWAPS:
        if found.has("battery", test):
            control = _or_dash(found, f"{test}.control_stays", numbers)
            plain = numbers.estimate(found, f"{test}.plain_accuracy", "battery")
            rows.append([*told, *_outcome(found, test, numbers), control, plain])
    for test, *told in INTERCHANGES:
        if found.has("battery", test):
            moved = numbers.range(found, f"{test}.earlier_rows_change", "battery", percent=False)
            rows.append([*told, *_outcome(found, test, numbers), f"logits move by {moved}", DASH])
    return table(
        ["what is changed at the last position", "the source expects", "the pointer account expects", "becomes y_k",
         "stays y_j", "control: stays y_j", "without a repeat: still right"],
        rows,
        f"{found.name}, mean over {len(found.seeds)} seeds [95 % interval]. Control of an exchange: the same "
        "between two pairs that have nothing to do with the answer. Control of an interchange: the same at the "
        "earlier positions.",
    )  # fmt: skip


def _outcome(found: Evidence, test: str, numbers: Numbers) -> list[str]:
    """What becomes of the answers: y_k, or still y_j."""
    return [numbers.estimate(found, f"{test}.{share}", "battery") for share in ("to_other", "stays")]


def _pointer_words(found: Evidence, numbers: Numbers) -> list[Block]:
    if not found.has("battery", "position_code_swap"):
        return []
    return [
        text(
            "Seeds differ. From the lowest to the highest seed, exchanging the position codes of x_j and x_k turns "
            f"{numbers.range(found, 'position_code_swap.to_other', 'battery')} of the answers into y_k. Where that is "
            "nearly all of them, the position code is the pointer. Where it is not, the code is only a part of what "
            "names the copy: how much attention goes to it can be another, since that too may depend on its slot."
        )
    ]


def _or_dash(found: Evidence, path: str, numbers: Numbers) -> str:
    return numbers.estimate(found, path, "battery") if found.has("battery", path) else DASH


def _ablation_table(found: Evidence, numbers: Numbers) -> Block:
    rows = [
        ["nothing (clean)", numbers.estimate(found, "clean.recall", "battery"),
         numbers.estimate(found, "clean.elimination", "battery")]
    ]  # fmt: skip
    if found.has("battery", "mlp_ablation"):
        rows += [
            [
                f"feed-forward output: {words}",
                numbers.estimate(found, f"mlp_ablation.{kind}.recall", "battery"),
                numbers.estimate(found, f"mlp_ablation.{kind}.elimination", "battery"),
            ]
            for kind, words in (
                ("mean", "its mean"),
                ("resample", "another sequence's"),
                ("zero", "zero"),
            )
        ]
    rows.append(
        [
            "equal weights on all y (the slot code erased)",
            numbers.estimate(found, "equal_y_weights.recall", "battery"),
            numbers.estimate(found, "equal_y_weights.elimination", "battery"),
        ]
    )
    if found.has("battery", "equal_y_weights.control_recall"):
        rows.append(
            [
                "control: equal weights on x that neither account reads",
                numbers.estimate(found, "equal_y_weights.control_recall", "battery"),
                numbers.estimate(found, "equal_y_weights.control_elimination", "battery"),
            ]
        )
    return table(
        ["what is changed at the last position", "recall", "elimination"],
        rows,
        f"{found.name}, mean over {len(found.seeds)} seeds [95 % interval]. Knowing only which values were shown "
        f"gives recall {numbers.shared(found, 'floors.used', 'battery')}; guessing gives "
        f"{numbers.shared(found, 'floors.uniform', 'battery')}. Zero is not a value that the network ever sees and "
        "exaggerates. A control below the clean score says that the x it touches matter for that skill.",
    )


def _decoding_blocks(found: Evidence, numbers: Numbers) -> list[Block]:
    if not found.has("decoding"):
        return []

    def score(path: str) -> str:
        return numbers.estimate(found, f"{path}.held_out", "decoding")

    sites = (
        ("answer.repeats.before", "right y of a repeat, before the feed-forward network"),
        ("answer.repeats.after", "right y of a repeat, after it"),
        ("answer.plain.before", "right y without a repeat, before it"),
        ("answer.plain.after", "right y without a repeat, after it"),
        ("pointer", "which slot x repeats, or none, before it"),
        ("answer.repeats.earlier_row", "control: right y from the row before, which has not seen the last x"),
        ("shuffled", "control: labels exchanged at random"),
        ("untrained.repeats.before", "the same members before training: right y of a repeat, before it"),
    )
    rows = [[words, score(f"{path}.linear"), score(f"{path}.mlp")] for path, words in sites]
    return [
        text(
            "If the feed-forward network does the selecting, the right y should be hard to read linearly from "
            "what goes in and easy from what comes out, while a probe with as many hidden units as that network "
            "should manage from what goes in. Probes are fitted on training mappings and scored on held-out ones."
        ),
        table(
            ["what is read from the last position", "linear probe", "probe with a hidden layer"],
            rows,
            f"{found.name}: held-out accuracy, mean over {len(found.seeds)} seeds [95 % interval]. Guessing among "
            f"all values scores {numbers.shared(found, 'floors.uniform', 'decoding')}, among the values shown "
            f"{numbers.shared(found, 'floors.used', 'decoding')}.",
        ),
        figure(
            "decoding",
            "Held-out accuracy of both kinds of probes, with floors and the members before training.",
            "Dot plot of probe accuracies by site.",
        ),
    ]


def _variants(evidence: Mapping[str, Evidence], numbers: Numbers) -> list[Block]:
    """The same data without position codes, and with one code for each pair."""
    named = [(f"{RECALLING}{suffix}", words) for suffix, words in (
        ("", "a code for each position"), (" positions=pair", "one code for the two tokens of a pair"),
        (" positions=none", "no position codes"))]  # fmt: skip
    there = [(evidence[name], words) for name, words in named if name in evidence]
    if len(there) < 2:
        return []
    rows = [
        [words, numbers.estimate(found, "elimination", "probes"), numbers.estimate(found, "recall", "probes"),
         numbers.loss_range(found)]
        for found, words in there
    ]  # fmt: skip
    return [
        text(
            "Whoever says that recall goes through position codes must expect it to fail without them. The "
            "presentation says that without them the model would be blind to order."
        ),
        table(
            ["position codes", "elimination", "recall", "training loss, lowest to highest seed"],
            rows,
            "Trained with repeats, mean over seeds [95 % interval].",
        ),
    ]


# Heads.


def head_section(config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers) -> Block:
    """What each head is for, and what its heat map shows."""
    measured = [found for found in base_only(config, evidence) if found.has("roles")]
    several = [found for found in measured if found.configuration.heads > 1]
    blocks: list[Block] = []
    if several:
        blocks = [
            text(
                "A role is a function: what is lost when the head's output at the last position is replaced by its "
                "mean. Each head of each seed is one point; a recall head would lie at the top left, an elimination "
                "head at the bottom right, a head that both skills need at the top right."
            ),
            figure(
                "head_roles",
                "Points of elimination and of recall lost by mean-ablating one head. Each point is a head of a seed.",
                "Scatter plot of the cost of ablating each head in elimination and in recall.",
            ),
            _spread_table(several, numbers),
            *[_map_table(found, numbers) for found in several if _has_both(found)],
        ]
    return section(
        "heads",
        "What each head is for, and what a heat map shows",
        *blocks,
        text(
            "Mean attention at the end of training over held-out sequences. Each row is a position that reads, each "
            "column a position that is read, and a row adds up to one. Choose sequences in which a chosen x comes "
            "back to see whether a head follows it to its earlier copy. A map shows where a head looks, not what "
            "its reading is used for; and of all rows only the last one has a say in the last answer."
        ),
        figure(
            "attention",
            "Mean attention patterns by configuration and head (rows) and seed (columns).",
            "Heat maps of mean attention patterns.",
        ),
    )


def _spread_table(measured: list[Evidence], numbers: Numbers) -> Block:
    rows = []
    for found in measured:
        words = found.known("roles", "spread")
        said = "; ".join(
            f"{word} in {numbers.count(found, words, word, 'roles', 'spread.[m]')}"
            for word, _ in Counter(words).most_common()
        )
        heads = found.known("roles", "assignment.recall_head") if _has_both(found) else []
        labels = "; ".join(
            f"head {head + 1} in {numbers.count(found, heads, head, 'roles', 'assignment.recall_head.[m]')}"
            for head in sorted(set(heads))
        )
        rows.append([found.name, str(len(found.seeds)), said, labels or DASH])
    return table(
        [
            "configuration",
            "seeds",
            "how the two skills are spread over heads",
            "the head closest to a recall head",
        ],
        rows,
        "One each: a head that costs at least half of recall and at most a tenth of elimination, and another the "
        "reverse. Which number the recall head has is a matter of chance: the count of label swaps.",
    )


def _has_both(found: Evidence) -> bool:
    """Whether some seed has both skills, so that heads can have roles."""
    return any(word != MISSING for word in found.known("roles", "spread"))


def _map_table(found: Evidence, numbers: Numbers) -> Block:
    rows = []
    heads = range(found.configuration.heads)
    measures = (
        ("recall_lost", "recall lost without it", None),
        ("elimination_lost", "elimination lost without it", None),
        ("heat_map.x_rows_to_earlier_y", "x positions look at earlier y (the source: elimination)", None),
        ("heat_map.y_rows_to_themselves", "y positions look at themselves (the source: recall)", None),
        ("heat_map.x_rows_to_preceding_y", "x positions look at the y before (the source: recall)", None),
        ("heat_map.last_row_to_copy", "last position looks at the earlier copy of its x", None),
    )
    for path, words, _ in measures:
        rows.append([words, *[numbers.range(found, f"{path}.[m].{head}", "roles") for head in heads]])
    agrees = found.known("roles", "heat_map_agrees")
    counted = numbers.count(found, agrees, True, "roles", "heat_map_agrees.[m]")
    return table(
        [found.name, *[f"head {head + 1}" for head in heads]],
        rows,
        "Lowest to highest seed. Read as the source reads it, the recall head is the one whose y positions look "
        "at themselves and whose x positions look at the y before; that is the head whose loss costs recall in "
        f"{counted} of {len(agrees)} seeds.",
    )
