"""Claims R1–R3, R9a–R9c and R11 of the paper, and N11, N13 and N15 of `docs/protocols.md` (Revision 3)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from hopscope.claims import COMPLETIONS, Claim, at_least, at_most
from hopscope.studies.chains.evidence import LEARNED
from hopscope.studies.depth import values
from hopscope.studies.depth.options import Options


def claims(options: Options) -> list[Claim]:
    trust = (
        "the task (held-out samples have a stream of their own, and every sample equals a plain reference), and the "
        "ensemble, tested against plain modules"
    )

    def claim(id: str, judged: values.Value, controls: Mapping[str, values.Value], /, **more: Any) -> Claim:
        readings = partial(values.by_reading, options, judged)
        # Controls are of the study's own reading.
        shown = {words: partial(values.under, (), options, each) for words, each in controls.items()}
        return Claim(id=id, trust=trust, readings=readings, controls=shown, **more)

    enough = {"the deepest models": partial(values.with_curriculum, step=options.steps)}
    asked_last = partial(values.with_curriculum, step=options.steps_last)
    curriculum = {"the same symbol with the curriculum, deepest models": asked_last}
    backwards = partial(values.steps_out_of_order, reverse=True)
    alone, own = at_least(options.of_plateau(values.UNLEARNED)), "docs/protocols.md, Revision 3"
    unlearned, growth = at_least(options.of_plateau(LEARNED)), values.GROWTH
    return [
        claim(
            "R1", values.losses_without_curriculum, curriculum,
            statement="Without the implicit curriculum no depth learns to retrieve over three steps.",
            source="paper §7.2",
            protocol="final held-out loss (mean over the last 100 steps) of every model that is asked for x_D alone, "
            "all depths",
            kind="general", must=alone, source_n=values.PAPER_RUNS,
            at_scale=partial(values.lacks, options, "non-IC"),
        ),
        claim(
            "R2", values.growth_of_layers, {"growth beyond that of shuffled depths": values.growth_by_depth},
            statement="Later positions of the chain need more layers.",
            source="paper §7.2",
            protocol="by seed: the smallest number of layers with a final partial loss of x_k under 0.5, and how it "
            "changes from k to k + 1 and from 1 to D; a step that no depth learns counts one layer more than the "
            "deepest model; the words say in how many models this follows from R3, and how many depths there are",
            kind="general", must=dict(zip(growth, (at_least(0.0, "layers"), at_least(1.0, "layers")), strict=True)),
            rule=dict(zip(growth, ("always", "mean"), strict=True)), must_not={growth[1]: at_most(0.0, "layers")},
            source_n=values.PAPER_SEEDS, seeds_needed=values.PAPER_SEEDS, at_scale=partial(values.lacks, options, "IC"),
        ),
        claim(
            "R3", values.steps_out_of_order, {"neighbours of which the earlier one came first": backwards},
            statement="In every run the partial losses fall under 0.5 in the order of the chain.",
            source="paper §7.2",
            protocol="first crossing of 0.5 of each held-out partial loss: number of neighbours k, k + 1 of which the "
            "later one came first; ties within one evaluation interval count for the claim, steps never learned as "
            "later than all others; of every run that learned a step, 8 seeds at least of each depth that can",
            kind="general", must=at_most(0.0), seeds_needed=values.PAPER_SEEDS,
            at_scale=partial(values.lacks, options, "IC"),
        ),
        Claim(
            id="R9a",
            statement="At least log₃(2D) layers are needed.",
            source="paper §5, theorem 1",
            protocol="exact minimum of layers in the same information-flow model minus log₃(2D), for D up to "
            f"{values.THEORY_STEPS}, with and without a causal mask, pairs deepest first and shallowest first",
            value=values.layers_above_bound, must=at_least(0.0, "layers"), structural="true by the theorem",
            controls={"log₂(2D), which is no bound: the least of all cases": values.layers_above_a_wrong_bound},
            trust="the exact minimum, tested against brute force over all orders of the pairs",
        ),
        claim(
            "R9b", partial(values.losses_below, "bound"), enough,
            statement="No trained model with fewer layers than log₃(2D) learns the last symbol, x_D.",
            source="paper §5, §7",
            protocol="final partial loss of x_D in every IC run with fewer layers than the bound, over all D",
            kind="general", must=unlearned, source_n=2 * values.PAPER_SEEDS,
            at_scale=partial(values.lacks, options, "IC", depths=False),
        ),
        claim(
            "R9c", partial(values.losses_below, "exact minimum"), enough,
            statement="No trained model with fewer layers than the exact minimum of the information-flow model learns "
            "x_D.",
            source="paper §5, §7, read with the exact minimum in place of the bound",
            protocol="final partial loss of x_D in every IC run with fewer layers than the exact minimum, over all D",
            kind="general", must=unlearned, source_n=2 * values.PAPER_SEEDS,
            at_scale=partial(values.lacks, options, "IC", depths=False),
        ),
        claim(
            "R11", values.largest_gains, {"each seed's depths moved on": partial(values.largest_gains, moved=True)},
            statement="Emergence is no mirage: with depth, skill jumps on a continuous metric too.",
            source="paper §10.1",
            protocol="by seed: gain of 1 minus the partial loss from one depth to the next, at the depth at which the "
            "other seeds gain the most, as a share of the seed's range over all depths, of which there are four or "
            "more; mean over the steps that are learned at some depth",
            kind="general", must=at_least(0.5, "fraction"), rule="mean",
            seeds_needed=values.PAPER_SEEDS, at_scale=partial(values.lacks, options, "IC"),
        ),
        Claim(
            id="N11", trust=trust,
            statement="Eight layers of eight heads need the schedule, not the start: under either start they learn at "
            "least 4 of 5 steps with it, and do not without it.",
            source=own,
            protocol="steps with a final held-out loss under 0.5, mean over seeds, by completion",
            value=partial(values.steps_by_completion, options), rule="mean", seeds_needed=values.PAPER_SEEDS,
            must={name: at_least(4.0, "steps") if name.endswith("schedule") else at_most(3.99, "steps")
                  for name in COMPLETIONS},
            at_scale=partial(values.lacks_of_schedules, options),
        ),
        claim(
            "N13a", values.above_minimum, {},
            statement="Trained models reach the exact minimum of layers.",
            source=own,
            protocol="for each step up to the third: least depth at which some seed has a final partial loss under "
            "0.25, minus the exact minimum of the same mask and order",
            kind="existence", must=at_most(0.0, "layers"), seeds_needed=values.MOST_STEPS,
            source_n=values.MOST_STEPS, at_scale=partial(values.lacks_of_depths, options),
        ),
        claim(
            "N13b", partial(values.losses_below, "exact minimum", every_step=True), enough,
            statement="No trained model learns a step with fewer layers than the exact minimum.",
            source=own,
            protocol="final partial loss of every step, in every model that has fewer layers than its exact minimum: "
            "at least 0.25",
            kind="general", must=at_least(values.OWN_LEARNED), seeds_needed=values.PAPER_SEEDS,
            at_scale=partial(values.lacks_of_depths, options, none=True),
        ),
        claim(
            "N15", partial(values.losses_without_curriculum, whole=False), curriculum,
            statement="The last symbol alone is learned under no start and no schedule.",
            source=own,
            protocol="final held-out loss of every model that is asked for x_D alone, D 3, under every completion",
            kind="general", must=alone, seeds_needed=values.PAPER_SEEDS,
            at_scale=partial(values.lacks_of_alone, options),
        ),
    ]  # fmt: skip
