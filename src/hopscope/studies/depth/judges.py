"""From evidence to judgement, claim by claim: which number of which runs meets which criterion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hopscope.claims import Criterion, Judgement, combine_parts, judge_always, judge_mean, not_run
from hopscope.claims.crossings import Order, order
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.evidence import LEARNED, Evidence, Evidences
from hopscope.studies.theory import exact_of
from hopscope.theory.information_flow import Mask, exact_layers, theorem_bound

Judge = Callable[[Evidences, DepthStudyConfig], Judgement]

PAPER_RUNS = 64
"""Runs of each formulation in the paper (section 7.1)."""

PAPER_DEPTHS = 8
"""Numbers of layers in the paper."""

R1 = Criterion(at_least=0.7)
R2 = {
    "layers from one step to the next": Criterion(at_least=0.0),
    "layers from first to last": Criterion(at_least=1.0),
}
R3 = Criterion(at_most=0.0)
R9A = Criterion(at_least=0.0)
R9B = Criterion(at_least=LEARNED)
R11 = Criterion(at_least=0.5, unit="fraction")

THEORY_STEPS = 64
"""Chains up to this length are counted through for R9a."""


def chosen(evidence: Evidences, config: DepthStudyConfig, asked: str) -> list[Evidence]:
    """The runs of Figure 4 with these targets, by depth; those of the sweep over D are left out."""
    steps = config.steps if asked == "IC" else config.steps_last
    found = [
        each
        for configuration, each in evidence.items()
        if configuration.asked == asked and configuration.steps == steps
    ]
    return sorted(found, key=lambda each: each.configuration.layers)


def _missing(found: Sequence[Evidence], config: DepthStudyConfig, *more: str) -> str:
    """What the runs lack of the paper's protocol; the details that the paper leaves open are no lack."""
    reasons = list(dict.fromkeys(reason for each in found for reason in each.departures))
    frozen = sum(len(each.frozen) for each in found)
    reasons += [f"{frozen} diverged runs left out"] if frozen else []
    return ", ".join([*reasons, *more])


def _few_depths(found: Sequence[Evidence]) -> list[str]:
    depths = len(found)
    return [] if depths >= PAPER_DEPTHS else [f"{depths} of {PAPER_DEPTHS} depths"]


def r1(evidence: Evidences, config: DepthStudyConfig) -> Judgement:
    """Without the curriculum nothing is learned, at any depth."""
    found = chosen(evidence, config, "non-IC")
    runs = [
        pair
        for each in found
        for pair in zip(each.loss, each.loss_error, strict=True)
        if pair[0] is not None and pair[1] is not None
    ]
    if not runs:
        return not_run("not trained in this run")
    losses = [loss for loss, _ in runs if loss is not None]
    errors = [error for _, error in runs if error is not None]
    missing = _missing(found, config, *_few_depths(found))
    return judge_always(losses, R1, source_n=PAPER_RUNS, evaluation_error=errors, at_scale=not missing,
                        missing=missing, noun="run")  # fmt: skip


@dataclass(frozen=True)
class Needed:
    """How many layers one seed took to learn each step of the chain.

    Attributes:
        seed: which one.
        layers: step k → least number of layers with a final partial loss under 0.5; one more than the largest trained
            where there was none (a lower bound).
    """

    seed: int
    layers: dict[int, int]


def needed_layers(found: Sequence[Evidence]) -> list[Needed]:
    """By seed, over the seeds that were trained at every depth; those that never learned x₁ say nothing."""
    if not found:
        return []
    seeds = set.intersection(*({*each.seeds} for each in found))
    beyond = found[-1].configuration.layers + 1
    needed = []
    for seed in sorted(seeds):
        layers = {}
        for step in found[0].asked:
            learned = [
                each.configuration.layers
                for each in found
                if (loss := each.partial[step][each.seeds.index(seed)]) is not None and loss < LEARNED
            ]
            layers[step] = min(learned, default=beyond)
        if layers[found[0].asked[0]] < beyond:
            needed.append(Needed(seed, layers))
    return needed


def r2(evidence: Evidences, config: DepthStudyConfig) -> Judgement:
    """Later steps of the chain need more layers."""
    found = chosen(evidence, config, "IC")
    if len(found) < 2 or len(found[0].asked) < 2:
        return not_run("needs several depths and steps")
    needed = [list(each.layers.values()) for each in needed_layers(found)]
    if not needed:
        return not_run("no seed learned the first step at any depth")
    missing = _missing(found, config, *_few_depths(found))
    names = list(R2)
    smallest = [float(min(later - earlier for earlier, later in pairwise(each))) for each in needed]
    growth = [float(each[-1] - each[0]) for each in needed]
    return combine_parts(
        {
            names[0]: judge_always(smallest, R2[names[0]], source_n=8, at_scale=not missing, missing=missing),
            # What is missing is said once.
            names[1]: judge_mean(growth, R2[names[1]], min_seeds=8, at_scale=not missing),
        }
    )


def out_of_order(found: Evidence) -> list[int | None]:
    """For each member, in how many neighbouring steps the later one was learned first.

    Two crossings within one evaluation interval are a tie, which is no disorder; a step that was never learned comes
    after those that were.  `None` for a member that learned nothing, which says nothing about an order.
    """
    by_step = [found.crossings(step) for step in found.asked]
    counts: list[int | None] = []
    for crossings in zip(*by_step, strict=True):
        orders = [
            order(earlier, later)
            for earlier, later in pairwise(crossings)
            if earlier is not None and later is not None
        ]
        known = [each for each in orders if each is not Order.UNKNOWN]
        counts.append(sum(each is Order.AFTER for each in known) if known else None)
    return counts


def r3(evidence: Evidences, config: DepthStudyConfig) -> Judgement:
    """The steps of the chain are learned one after another."""
    found = [each for each in chosen(evidence, config, "IC") if len(each.asked) > 1]
    counts = [count for each in found for count in out_of_order(each)]
    known = [float(count) for count in counts if count is not None]
    if not known:
        return not_run("no run learned a step" if counts else "not trained in this run")
    missing = _missing(found, config, *_few_depths(found))
    judgement = judge_always(
        known, R3, source_n=PAPER_RUNS, at_scale=not missing, missing=missing, noun="run"
    )
    silent = len(counts) - len(known)
    words = (
        f"{judgement.words}; {silent} more learned no step, and have no order" if silent else judgement.words
    )
    return judgement.model_copy(update={"words": words})


def r9a(evidence: Evidences, config: DepthStudyConfig) -> Judgement:
    """The theorem's bound against the exact minimum: by how many layers it is loose."""
    masks: tuple[Mask, ...] = ("causal", "none")
    gaps = [
        exact_layers(steps, mask, order_) - theorem_bound(steps)
        for steps in range(1, THEORY_STEPS + 1)
        for mask in masks
        for order_ in ("deepest-first", "shallowest-first")
    ]
    judgement = judge_always(gaps, R9A, source_n=1, noun="case")
    meeting = sum(gap >= 0 for gap in gaps)
    words = (
        f"{meeting} of {len(gaps)} cases meet it, counted through one by one; the exact minimum lies "
        f"{min(gaps):.2f} to {max(gaps):.2f} layers above the bound"
    )
    # These are all cases there are, not a sample of some: there is no interval.
    return judgement.model_copy(update={"interval": None, "words": words})


def r9b(evidence: Evidences, config: DepthStudyConfig) -> Judgement:
    """No run with fewer layers than the bound learns x_D."""
    runs = last_step_by_depth(evidence)
    below = [
        (each, loss)
        for each, loss in runs
        if each.configuration.layers < theorem_bound(each.configuration.steps)
    ]
    if not below:
        return not_run("no run has fewer layers than the bound")
    missing = _missing([each for each, _ in below], config)
    judgement = judge_always([loss for _, loss in below], R9B, source_n=16, at_scale=not missing, missing=missing,
                             noun="run")  # fmt: skip
    exact = [exact_of(config.of(each.configuration), each.configuration.steps) for each, _ in runs]
    between = [
        loss
        for (each, loss), least in zip(runs, exact, strict=True)
        if theorem_bound(each.configuration.steps) <= each.configuration.layers < least
    ]
    learned = sum(loss < LEARNED for loss in between)
    further = (
        f"; of {len(between)} further runs below the exact minimum of the information-flow model, {learned} "
        f"learned x_D{', which speaks against Assumption 1' if learned else ''}"
        if between
        else ""
    )
    return judgement.model_copy(update={"words": judgement.words + further})


def last_step_by_depth(evidence: Evidences) -> list[tuple[Evidence, float]]:
    """Every IC run with its final partial loss of x_D."""
    return [
        (each, loss)
        for configuration, each in evidence.items()
        if configuration.asked == "IC"
        for loss in each.partial[configuration.steps]
        if loss is not None
    ]


def skill_gains(found: Sequence[Evidence]) -> dict[int, float]:
    """By seed: the largest gain in skill from one depth to the next, as a share of the range over all depths.

    Skill in x_k is 1 minus its partial loss, a continuous metric; what is taken is the mean over the steps that the
    seed learns at some depth.  A seed that learns none has no range.
    """
    if len(found) < 2:
        return {}
    gains = {}
    for seed in sorted(set.intersection(*({*each.seeds} for each in found))):
        shares = []
        for step in found[0].asked:
            losses = [each.partial[step][each.seeds.index(seed)] for each in found]
            skills = [1.0 - loss for loss in losses if loss is not None]
            if len(skills) == len(found) and max(skills) > 1.0 - LEARNED:
                largest = max(deeper - shallower for shallower, deeper in pairwise(skills))
                shares.append(largest / (max(skills) - min(skills)))
        if shares:
            gains[seed] = sum(shares) / len(shares)
    return gains


def r11(evidence: Evidences, config: DepthStudyConfig) -> Judgement:
    """Skill jumps with depth, on a continuous metric too."""
    found = chosen(evidence, config, "IC")
    gaps = [deeper.configuration.layers - each.configuration.layers for each, deeper in pairwise(found)]
    if not found or any(gap != 1 for gap in gaps) or len(found) < 3:
        return not_run("needs three depths or more, one layer apart")
    gains = list(skill_gains(found).values())
    if not gains:
        return not_run("no seed learned a step at any depth")
    missing = _missing(found, config, *_few_depths(found))
    return judge_mean(gains, R11, min_seeds=8, at_scale=not missing, missing=missing)
