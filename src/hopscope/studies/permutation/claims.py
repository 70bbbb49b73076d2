"""Claims P1 to P12 of the presentation: which number of which configuration is held to what.

What the presentation leaves open is run in several readings: the batch size, the length of training, the moment of a
score, and others by claim; the first is the default.  P6, P7 and P11 hang on which mappings are held out: where a run
has several splits, their intervals are over seeds and splits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, at_least, at_most, between
from hopscope.studies.permutation import readings as read
from hopscope.studies.permutation.options import PUBLISHED, Options
from hopscope.studies.permutation.readings import Trained, Value, together
from hopscope.tasks import Permutation
from hopscope.theory.posteriors import elimination_floor

if TYPE_CHECKING:
    from hopscope.study.study import Study

PLAIN, RECALLING = PUBLISHED
"""The two configurations that the presentation shows results of."""

MEMORISING = {"V = 4": "d32/2 plain V=4", "V = 5": "d32/2 plain"}
"""The configurations of P11."""

P2 = {"recall": at_most(0.01, "fraction"), "mass_unused": at_least(0.99, "fraction")}
P3_RECALL = {"recall": at_least(0.999, "fraction"), "mass_recalled": at_least(0.99, "fraction")}
P3 = {"elimination": at_least(0.999, "fraction"), **P3_RECALL}
P6 = {
    f"{measure} {name}": criterion
    for name in (PLAIN, RECALLING)
    for measure, criterion in (("mae", at_most(0.025)), ("mass_on_used", at_most(0.005, "fraction")))
}
P7 = {"tilt_correlation": at_most(0.0), "train_minus_held_out": at_most(0.0, "fraction")}
P8 = {
    "d16/1 repeats": at_most(0.05, "fraction"), "d32/1 repeats": between(0.1, 0.9, "fraction"),
    "d32/2 repeats": at_least(0.99, "fraction"),
}  # fmt: skip
P9 = {
    "recall_lost_with_recall_head": at_least(0.5, "fraction"),
    "elimination_lost_with_recall_head": at_most(0.1, "fraction"),
    "elimination_lost_with_elimination_head": at_least(0.5, "fraction"),
    "recall_lost_with_elimination_head": at_most(0.1, "fraction"),
}
P9B = {
    "x_rows_to_earlier_y": at_least(0.9, "fraction"), "y_rows_to_themselves": at_least(0.5, "fraction"),
    "x_rows_to_preceding_y": at_least(0.5, "fraction"),
}  # fmt: skip
OF_HEADS = {name: (name.partition("_with_")[0], int("elimination_head" in name)) for name in P9}
OF_MAPS = {name: (name, int(name != "x_rows_to_earlier_y")) for name in P9B}
"""Parts of P9 and P9b → the metric, and which of the two heads it is of."""

_MACHINERY = (
    "the split (held-out mappings never enter a training batch), the exhaustive evaluation sets, and the ensemble, "
    "each tested against a slow reference"
)
_INTERVENTIONS = f"{_MACHINERY}; the interventions, tested on hand-built models whose answers are known"


def of(name: str, metric: str, measure: str = "probes", **where: Any) -> Value:
    return partial(read.measured, name, metric, measure=measure, **where)


def metrics(parts: Iterable[str], name: str, measure: str = "probes", **where: Any) -> Value:
    return together({metric: of(name, metric, measure, **where) for metric in parts})


def moments(value: Callable[[str], Value], way: str = "", end: str = "probes") -> dict[str, Value]:
    """The value by a measure at the last checkpoint, and by that of the last epochs: the presentation names neither."""
    late = "scores as the median of the last five epochs"
    return {way: value(end), ", ".join(filter(None, [way, late])): value("late")}


def claims(options: Options, study: "Study") -> Iterator[Claim]:
    task, of_reading = study.task, read.readings_of(options, study)
    assert isinstance(task, Permutation)
    values, default = task.values, next(iter(of_reading.values()))

    def complete(names: Sequence[str]) -> dict[str, list[list[Trained]]]:
        # Each reading that has every configuration, and not just those of one before; the first in any case.
        found = dict[str, list[list[Trained]]]()
        for words, reading in of_reading.items():
            several = [read.named(reading, name) for name in names]
            if not found or (all(several) and several not in found.values()):
                found[words] = several
        return found

    def untried(names: Sequence[str], lengths: Sequence[int] = (20, 50)) -> Callable[[Any], str]:
        tried = set[str]()
        for several in filter(all, complete(names).values()):
            trained = [each for some in several for each in some]
            tried |= {f"batch {each.batch_size}" for each in trained}
            tried |= {f"{n} epochs" for n in lengths if all(each.epochs == n for each in trained)}
        asked = [f"batch {size}" for size in (64, 128, 256, 512)] + [f"{length} epochs" for length in lengths]
        return lambda evidence: ", ".join(each for each in asked if each not in tried)

    def claim(
        id: str, statement: str, section: str, protocol: str, must: Any, rule: Any, ways: Value | Mapping[str, Value],
        names: Sequence[str], control: tuple[str, Value], must_not: Any = None, **more: Any,
    ) -> Claim:  # fmt: skip
        readings = {
            ", ".join(filter(None, [words, way])): partial(value, of_reading[words])
            for words in complete(names)
            for way, value in (ways if isinstance(ways, Mapping) else {"": ways}).items()
        }
        words, shows = control
        return Claim(
            id=id, statement=statement, source=f"presentation {section}", protocol=protocol, must=must, rule=rule,
            readings=readings, controls={words: partial(shows, default)}, must_not=must_not or must,
            **{"trust": _MACHINERY, **more},
        )  # fmt: skip

    yield claim(
        "P1", "A model with width 16 and one head, trained on plain data, answers step 5 of unseen mappings perfectly.",
        "§6", "accuracy at step 5 over all held-out sequences, last checkpoint, every seed",
        at_least(0.999, "fraction"), "always", of(PLAIN, "elimination"), [PLAIN],
        ("step 4, where two values are left", of(PLAIN, "accuracy", "posteriors", part="step_4")),
    )  # fmt: skip
    yield claim(
        "P2", "The model of P1 fails every repeat probe: it picks the unused value, not the one it has seen.", "§7",
        "all held-out sequences whose x₅ copies an earlier x: recall, and mean probability of the unused value",
        P2, "always", metrics(P2, PLAIN), [PLAIN], ("the model trained with repeats", metrics(P2, RECALLING)),
    )  # fmt: skip
    yield claim(
        "P3", "Width 32 with two heads, trained with 30 % repeats, eliminates and recalls perfectly at step 5.", "§8–9",
        "accuracy at step 5 over all held-out sequences without and with a repeat; mean probability of the recalled "
        "value",
        P3, "always", moments(lambda measure: metrics(P3, RECALLING, measure)), [RECALLING],
        ("the model trained without repeats", metrics(P3_RECALL, PLAIN)), P3_RECALL, untried=untried([RECALLING]),
    )  # fmt: skip
    floor, both = elimination_floor(values), (PLAIN, RECALLING)
    at_floor = dict.fromkeys(both, between(floor - 0.003, floor + 0.003, "nats"))
    losses = {name: of(name, "last_epoch_loss", "last_epoch", split="train") for name in both}
    yield claim(
        "P4", "The training loss of both models settles at the floor of pure elimination, ln(V!)/V.", "§4, §8",
        "mean training loss over the last epoch", at_floor, "mean", together(losses), both,
        ("the first step of training", partial(read.first_loss, losses)),
    )  # fmt: skip

    sudden = {
        part: partial(read.suddenness, of(RECALLING, "relative_width", "transition", part=part))
        for part in ("from_zero", "from_chance", "elimination.from_zero")
    }
    yield claim(
        "P5", "Recall appears suddenly, as a phase transition.", "§8",
        "time from 10 % to 90 % of the rise of held-out recall as a share of the time to 50 %, over seeds; the rise is "
        "taken from zero, and, as another reading, from 1/(V - 1), which noticing a repeat brings without recall",
        at_most(0.25, "fraction"), "mean",
        {"rise from zero": sudden["from_zero"], "rise from chance": sudden["from_chance"]}, [RECALLING],
        ("elimination, which nobody calls sudden", sudden["elimination.from_zero"]), untried=untried([RECALLING]),
    )  # fmt: skip
    steps = [f"step_{step}" for step in range(1, values + 1)]
    beliefs = {"mae": ("mae_uniform", steps), "mass_on_used": ("used_mass_mean", steps[1:4])}
    worst = {
        f"{words} {name}": of(name, metric, "posteriors", part=parts, of_all_splits=True)
        for name in both
        for words, (metric, parts) in beliefs.items()
    }
    yield claim(
        "P6", "The probabilities are those of the Bayesian posterior; used values get none.", "§6, §9",
        "mean absolute error against the uniform posterior, at the worst step of each seed; mean mass on used values "
        "at the worst of steps 2–4; all held-out sequences without a repeat",
        P6, "mean", together(worst), both,
        ("repeats, asked of the model that has seen none", of(PLAIN, "repeat_mae")), at_most(0.025),
    )  # fmt: skip
    yield claim(
        "P7", "Accuracy below chance at steps 1–4 is only uncertainty.", "§6",
        "refuted if both are above zero: the correlation, over held-out prefixes and free values, of the model's tilt "
        "away from the uniform posterior with that of the training mappings, and accuracy on training minus on "
        "held-out mappings, steps 1–4",
        P7, "mean", metrics(P7, PLAIN, "posteriors", of_all_splits=True), [PLAIN],
        ("tilts of other sequences", of(PLAIN, "tilt_control", "posteriors")), at_least(0.05), need="any",
    )  # fmt: skip

    def p8(measure: str, narrow: str = "d16/1 repeats") -> Value:
        asked = {"d16/1 repeats": narrow}
        return together({name: of(asked.get(name, name), "recall", measure) for name in P8})

    yield claim(
        "P8", "Trained with repeats, width 16 with one head never recalls, width 32 with one head partly, two fully.",
        "§5", "recall over all held-out repeats, by configuration",
        P8, {name: "mean" if name == "d32/1 repeats" else "always" for name in P8},
        {**moments(p8), **moments(partial(p8, narrow=PLAIN), f"{PLAIN} as the model of width 16")}, [*P8],
        ("the larger model, trained without repeats", of("d32/2 plain", "recall")), at_least(0.1, "fraction"),
        untried=untried([*P8]),
    )  # fmt: skip
    lost = partial(read.of_two_heads, RECALLING, OF_HEADS, P9)
    without = partial(read.of_two_heads, MEMORISING["V = 5"], OF_HEADS, P9)
    yield claim(
        "P9", "One head eliminates and the other recalls, in every seed.", "§10",
        "mean-ablate each head at the last row: what recall and elimination lose with the head that comes closest to "
        "being the recall head, and with the one that comes closest to being the elimination head",
        P9, "always", lost, [RECALLING],
        ("the heads of a model that never recalls, distance from all four", partial(read.distance, without, P9)),
        at_most(0.0, "fraction"), trust=_INTERVENTIONS,
    )  # fmt: skip
    maps = partial(read.of_two_heads, RECALLING, OF_MAPS, P9B, part="heat_map")
    yield claim(
        "P9b", "On the heat maps of one head, x rows attend to earlier y's alone; on the other's, y rows attend to "
        "themselves and x rows to the y before.", "§10",
        "mean attention on held-out sequences without a repeat, of the two heads in the order that comes closest",
        P9B, "always", maps, [RECALLING],
        ("the heads in the other order, distance from all three",
         partial(read.distance, partial(maps, closest=False), P9B)), at_most(0.0, "fraction"),
    )  # fmt: skip
    mlp: Any = {"measure": "battery", "part": "clean", "less": "mlp_ablation.mean"}
    yield claim(
        "P10a", "Recall needs the feed-forward network.", "§11",
        "mean-ablate the feed-forward network at the last row: points of recall and of elimination lost",
        {"recall_lost": at_least(0.5, "fraction"), "elimination_lost": at_most(0.15, "fraction")}, "mean",
        together({f"{skill}_lost": of(RECALLING, skill, **mlp) for skill in ("recall", "elimination")}), [RECALLING],
        ("elimination of the model without recall", of(PLAIN, "elimination", **mlp)), at_least(0.5, "fraction"),
        trust=_INTERVENTIONS,
    )  # fmt: skip
    every = product(("uniform", "identity", "random"), ("repeats", "plain"))
    replaced = [f"earlier_rows.{by}.{kind}" for by, kind in every]
    yield claim(
        "P10b", "The local binding in the y rows is what recall uses.", "§11",
        "replace the attention patterns of all rows before the last (uniform, identity, random): largest change of any "
        "logit at the last row, over all sequences",
        at_least(1e-6), "always", of(RECALLING, "last_row_change", "battery", part=replaced), [RECALLING],
        ("outputs of heads replaced by themselves", of(RECALLING, "self_change", "battery", part="head_interchange")),
        structural=True, trust=_INTERVENTIONS,
    )  # fmt: skip

    def p11(measure: str) -> Value:
        share = partial(of, metric="memorised_share", measure=measure, split="train", of_all_splits=True)
        return together({part: share(name) for part, name in MEMORISING.items()})

    names, known = [*MEMORISING.values()], task.model_copy(update={"values": 4}).mappings(False)
    held_out = of(names[0], "held_out_loss", "posteriors")
    yield claim(
        "P11", "Four values can be memorised, five cannot.", "§2",
        "width 32 with two heads on plain data, 20 epochs: share of the way from the uniform to the memorised floor "
        "that the loss on all training sequences has gone, at V = 4 and V = 5",
        {"V = 4": at_least(0.5, "fraction"), "V = 5": at_most(0.1, "fraction")}, "mean",
        moments(p11, end="posteriors"), names,
        ("V = 4, held-out mappings", partial(read.memorised_held_out, held_out, known)),
        at_least(0.5, "fraction"), untried=untried(names, (20, 200)),
    )  # fmt: skip
    ways = {"5,000 test sequences": "repeat_max_ae_of_sample", "all held-out sequences": "repeat_max_ae"}
    yield claim(
        "P12", "Where recall is asked for, the largest error of any probability is below 0.06.",
        "§9 (published: 0.0557)", "largest absolute error against certainty of the value seen before, among the "
        "repeats of 5,000 test sequences drawn at random, expected; and over all held-out repeats",
        at_most(0.06), "always", {way: of(RECALLING, metric) for way, metric in ways.items()}, [RECALLING],
        ("the model that has seen no repeats", of(PLAIN, "repeat_max_ae")),
        untried=lambda evidence: "" if "repeat_max_ae_of_sample" in evidence else "5,000 test sequences",
    )  # fmt: skip
