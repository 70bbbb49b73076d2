"""Claims R1–R3, R9a–R9c and R11 of the paper; what they are judged on is in `hopscope.studies.depth.values`."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, at_least, at_most
from hopscope.studies.depth import controls, own_claims, values
from hopscope.studies.depth.config import DepthStudyConfig, Reading

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

PAPER_RUNS = 64
"""Models of each formulation in the paper: "For each formulation, I train 64 transformers with 1 to 8 layers (8
transformers for each number of layers)" (section 7)."""

TRUST = (
    "the task (held-out samples have a stream of their own, and every sample equals a plain reference), and the "
    "ensemble, tested against plain modules"
)


def claims(config: DepthStudyConfig) -> tuple[Claim, ...]:
    """The ledger of the study."""
    claim = partial(Claim, trust=TRUST)
    return (
        claim(
            id="R1",
            kind="general",
            statement="Without the implicit curriculum no depth learns to retrieve over three steps.",
            source="paper §7.2",
            protocol="final held-out loss (mean over the last 100 steps) of every model that is asked for x_D alone, "
            "all depths",
            readings=partial(by_reading, values.losses_without_curriculum),
            must=at_least(values.of_plateau(0.7, config.chains)),
            controls={"the same symbol with the curriculum, deepest models": controls.loss_with_curriculum},
            must_not=at_least(values.of_plateau(0.7, config.chains)),
            source_n=PAPER_RUNS,
            at_scale=partial(values.lacks, "non-IC"),
        ),
        claim(
            id="R2",
            kind="general",
            statement="Later positions of the chain need more layers.",
            source="paper §7.2",
            protocol="by seed: the smallest number of layers with a final partial loss of x_k under 0.5, and how it "
            "changes from k to k + 1 and from 1 to D; a step that no depth learns counts one layer more than the "
            "deepest model; the words say in how many models this follows from R3, and how many depths there are",
            readings=partial(by_reading, values.growth_of_layers),
            must=dict(zip(values.GROWTH, (at_least(0.0, "layers"), at_least(1.0, "layers")), strict=True)),
            rule=dict(zip(values.GROWTH, ("always", "mean"), strict=True)),
            controls={"the same of steps that some depth learns": controls.growth_among_learned},
            must_not={values.GROWTH[1]: at_most(0.0, "layers")},
            source_n=values.PAPER_SEEDS,
            seeds_needed=values.PAPER_SEEDS,
            at_scale=partial(values.lacks, "IC"),
        ),
        claim(
            id="R3",
            kind="general",
            statement="In every run the partial losses fall under 0.5 in the order of the chain.",
            source="paper §7.2",
            protocol="first crossing of 0.5 of each held-out partial loss: number of neighbours k, k + 1 of which the "
            "later one came first; ties within one evaluation interval count for the claim, steps never learned as "
            "later than all others; of every run that learned a step, 8 seeds at least of each depth that can",
            readings=partial(by_reading, values.steps_out_of_order),
            must=at_most(0.0),
            controls={"neighbours of which the earlier one came first": controls.steps_in_order},
            must_not=at_most(0.0),
            seeds_needed=values.PAPER_SEEDS,
            at_scale=partial(values.lacks, "IC"),
        ),
        claim(
            id="R9a",
            statement="At least log₃(2D) layers are needed.",
            source="paper §5, theorem 1",
            protocol="exact minimum of layers in the same information-flow model minus log₃(2D), for D up to "
            f"{values.THEORY_STEPS}, with and without a causal mask, pairs deepest first and shallowest first",
            value=values.layers_above_bound,
            must=at_least(0.0, "layers"),
            structural="true by the theorem",
            controls={
                "log₂(2D), which is no bound: the least of all cases": controls.layers_above_a_wrong_bound
            },
            must_not=at_least(0.0, "layers"),
            trust="the exact minimum, tested against brute force over all orders of the pairs",
        ),
        claim(
            id="R9b",
            kind="general",
            statement="No trained model with fewer layers than log₃(2D) learns the last symbol, x_D.",
            source="paper §5, §7",
            protocol="final partial loss of x_D in every IC run with fewer layers than the bound, over all D",
            readings=partial(by_reading, values.losses_below_bound),
            must=at_least(values.learned_below(config)),
            controls={"the deepest models": controls.loss_with_enough_layers},
            must_not=at_least(values.learned_below(config)),
            source_n=2 * values.PAPER_SEEDS,
            at_scale=partial(values.lacks_below, "bound"),
        ),
        claim(
            id="R9c",
            kind="general",
            statement="No trained model with fewer layers than the exact minimum of the information-flow model learns "
            "x_D.",
            source="paper §5, §7, read with the exact minimum in place of the bound",
            protocol="final partial loss of x_D in every IC run with fewer layers than the exact minimum, over all D",
            readings=partial(by_reading, values.losses_below_exact),
            must=at_least(values.learned_below(config)),
            controls={"the deepest models": controls.loss_with_enough_layers},
            must_not=at_least(values.learned_below(config)),
            source_n=2 * values.PAPER_SEEDS,
            at_scale=partial(values.lacks_below, "exact minimum"),
        ),
        claim(
            id="R11",
            kind="general",
            statement="Emergence is no mirage: with depth, skill jumps on a continuous metric too.",
            source="paper §10.1",
            protocol="by seed: largest gain of 1 minus the partial loss from one depth to the next, as a share of its "
            "range over all depths, mean over the steps that are learned at some depth",
            readings=partial(by_reading, values.largest_gains),
            must=at_least(0.5, "fraction"),
            rule="mean",
            controls={"from one seed to the next at the same depth": controls.gain_between_seeds},
            must_not=at_least(0.5, "fraction"),
            seeds_needed=values.PAPER_SEEDS,
            at_scale=partial(values.lacks, "IC"),
        ),
        *own_claims.claims(by_reading, TRUST),
    )


def by_reading(value: values.ValueOfClaim, evidence: "Evidence") -> Mapping[str, values.ValueOfClaim]:
    """The value of a claim under each reading of what the paper leaves open, the study's own first.

    A study that goes through none has one reading, without a name.
    """
    config = values.study_config(evidence)
    readings = config.readings()
    if len(readings) == 1:
        return {"": value}
    # Where completions alone are tried, the readings are their names, by which a verdict combines them.
    whole = all(reading.completion or not reading.changes for reading in readings) and not config.departures
    own = config.completion if whole else "as configured"
    return {reading.words or own: partial(under, reading, value) for reading in readings}


def under(reading: Reading, value: values.ValueOfClaim, evidence: "Evidence") -> Any:
    """The value of a claim on the models that were trained under one reading."""
    return value(values.of_reading(evidence, reading))
