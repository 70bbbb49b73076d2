"""Made-up evidence of a permutation run with every number that its page asks for, learned or not."""

from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study

NEVER = float("inf")
WAYS = ("from_zero", "from_chance")
POINTS = ("start", "half", "end")
WORDS = ("one each", "one head does both", "shared", "neither", "a skill is missing")
SITES = ("repeats.before", "repeats.after", "plain.before", "plain.after", "repeats.earlier_row",
         "untrained.repeats.before")  # fmt: skip


def page_evidence(config, learned=True, diverged=(), only=(), more=(), matchless=()):
    """The table of a run; numbers of equal places are alike but for a small share that tells seeds apart.

    Args:
        config: of the study.
        learned: whether all skills are learned that the data reward.
        diverged: members whose training broke off.
        only: measures that the table has; empty for all.
        more: further rows.
        matchless: members in which match never formed, so that their record has it behind history.
    """
    members, rows = [], []
    for configuration in config.grid():
        for seed in range(config.seeds_of(configuration)):
            member = len(members)
            members.append({"member": member, "seed": seed, "configuration": configuration.name,
                            "overrides": configuration.overrides()})  # fmt: skip
            steps = config.training(configuration).steps
            found = dict(_numbers(config, configuration, learned, 0.001 * (seed + 1)))
            if member in matchless:
                found.update(_matchless())
            for (measure, metric, part, split, head), value in found.items():
                if only and measure not in only:
                    continue
                gone = member in diverged
                layer = None if head is None else 0
                rows.append(Row(member, measure, metric, None if gone else value, split, steps, part=part,
                                layer=layer, head=head))  # fmt: skip
            recall = found["probes", "recall", None, "held_out", None]
            for step in (0, steps // 2, steps):
                value = None if member in diverged and step else recall
                rows.append(Row(member, "training", "recall", value, step=step))
    return Evidence.of(members, [*rows, *more], config.model_dump(mode="json"))


def _numbers(config, configuration, learned, own):
    """(measure, metric, part, split, head) → value; `own` is the seed's own small share."""
    repeats = configuration.data == "repeats"
    recall = 1 - own if learned and repeats else own if learned else 0.2 + own
    elimination = 1 - own if learned else 0.2 + own

    def each(measure, split="held_out", part=None, head=None, **numbers):
        for metric, value in numbers.items():
            yield (measure, metric, part, split, head), value

    yield from each("probes", recall=recall, elimination=elimination, mass_unused=0.5 + own, repeat_mae=own,
                    repeat_max_ae=2 * own)  # fmt: skip
    yield from each("posteriors", tilt_correlation=0.2 + own, tilt_control=own, tilt_slope=own,
                    train_minus_held_out=0.1 + own)  # fmt: skip
    yield from each("posteriors", "train", memorised_share=0.01 + own)
    yield from each("last_epoch", "train", last_epoch_loss=0.957 + own if learned else 1.6 + own)
    for part in ("plain", "repeats"):
        yield from each("probes", part=part, exhaustive=1.0)
    for step in range(1, config.values + 1):
        part = f"step_{step}"
        yield from each("probes", part=part, accuracy=0.3 + own, mae=own, max_ae=2 * own)
        yield from each("posteriors", part=part, used_mass_mean=own)
        for split in ("held_out", "train"):
            yield from each("posteriors", split, part, kl_uniform=own, kl_training=2 * own)
    if repeats:
        yield from _sudden(each, learned, own)
    if config.is_whole(configuration):
        yield from _taken_apart(each, configuration, learned, recall, elimination, own)


def _sudden(each, learned, own):
    for way in WAYS:
        width = {"from_zero": 0.9, "from_chance": 0.3}[way] + own if learned else NEVER
        yield from each("transition", part=way, width=1e5 * width, relative_width=width)
        for place, point in enumerate(POINTS):
            yield from each(
                "transition", part=f"{way}.{point}", time=1e5 * (place + 1 + own) if learned else NEVER
            )
    if learned:
        yield from each("transition", part="steepest_fall", time=2e5 + own)
    for place, part in enumerate(("match", "history", "recall")):
        yield from each("formation", part=f"{part}.half.time", formed=1e5 * (place + 1) if learned else NEVER)
        yield from each("formation", part=f"{part}.final", formed=0.7 + own if learned else own)
        yield from each("formation", part=part, reached=0.5 + own if learned else None)
    for point in ("half", "start"):
        yield from each("formation", part=f"{point}.match.history", order=-1.0 if learned else None)


def _matchless():
    for point in ("half", "start"):
        yield ("formation", "order", f"{point}.match.history", "held_out", None), 1.0
    yield ("formation", "formed", "match.half.time", "held_out", None), NEVER
    yield ("formation", "reached", "match", "held_out", None), None


def _taken_apart(each, configuration, learned, recall, elimination, own):
    for part in ("clean", "earlier_rows.last_row_replaced.uniform", "mlp_ablation.mean", "equal_y_weights"):
        yield from each("battery", part=part, recall=recall, elimination=elimination)
    for part in ("uniform", "used"):
        yield from each("battery", part=part, floors=0.25)
        yield from each("decoding", part=part, floors=0.25)
    for kind in ("repeats", "plain"):
        for by in ("uniform", "identity", "random"):
            yield from each("battery", part=f"earlier_rows.{by}.{kind}", last_row_change=0.0,
                            earlier_rows_change=1 + own)  # fmt: skip
    for test in ("position_code_swap", "y_swap", "attention_swap"):
        yield from each("battery", part=test, to_other=0.5 + own, stays=0.3 + own, control_stays=0.9 + own,
                        plain_accuracy=0.9 + own)  # fmt: skip
    for site in SITES:
        for probe in ("linear", "mlp"):
            high = site == "repeats.after" or probe == "mlp"
            yield from each(
                "decoding", part=f"{site}.{probe}", answer=0.9 + own if learned and high else 0.2 + own
            )
    word = "shared" if learned and configuration.data == "repeats" else "a skill is missing"
    for each_word in WORDS:
        yield from each("roles", part=each_word, spread=float(each_word == word))
    for head in range(configuration.heads):
        yield from each("roles", head=head, recall_lost=0.5 + own, elimination_lost=0.1 + own)
    if configuration.heads > 1:
        yield from each("roles", heat_map_agrees=1.0)
        yield from each("roles", part="assignment", recall_head=1.0)


def run_folder(root, config, evidence):
    """A folder of the run, with nothing measured in it."""
    records = [
        {
            "member": member,
            "unit": label.replace("/", "-"),
            "index": 0,
            "seed": evidence.seeds[member],
            "overrides": {},
        }
        for member, label in evidence.configurations.items()
    ]
    return RunFolder.create(root, "permutation", config.model_dump(mode="json"), records, "smoke")


def told(root, config, evidence, ledger=None):
    """The story of a run, from its evidence and its ledger."""
    program = find_study("permutation")
    if ledger is None:
        ledger = Ledger([judge(claim, evidence) for claim in program.claims(config)])
    return program.story(run_folder(root, config, evidence), config, evidence, ledger)
