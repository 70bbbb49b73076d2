"""Made-up runs that try to fool the claims of the built-in studies."""

import math
from dataclasses import replace
from functools import cache

import pytest
from tests.claims.adversary import INCONCLUSIVE, NOT_RUN, REFUTED, REPRODUCED, Adversary, listed
from tests.studies import cells
from tests.studies import made_up as permutation
from tests.studies.circuit_study import made_up as circuits
from tests.studies.circuit_study.made_up import induction, member, path, unseen_of
from tests.studies.depth import made_up as depth
from tests.studies.llm import made_up as llm
from tests.studies.tiny_lm import made_up as tiny_lm

from hopscope.claims import JudgedClaim, judge
from hopscope.studies import find_study
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.llm.config import PRESETS as LLM
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.tiny_lm.config import TinyLmConfig
from hopscope.theory.posteriors import elimination_floor

FLOOR = elimination_floor(5)
PLAIN, REPEATS, MEMORISING = "d16/1 plain", "d32/2 repeats", "d32/2 plain V=4"
GOOD = {
    PLAIN: {"elimination": 1.0, "recall": 0.0, "mass_unused": 0.995, "loss": FLOOR, "tilt": -0.1, "gap": -0.02},
    REPEATS: {"elimination": 1.0, "recall": 1.0, "mass_recalled": 0.999, "loss": FLOOR, "rise": 100.0,
              "last_row": 0.01},
    MEMORISING: {"memorised": 0.8},
}  # fmt: skip
"""What the claims about a configuration ask for."""


# Permutations


def of_permutation(claim_id: str, name: str = PLAIN, config=None, *, only=None, **changed) -> JudgedClaim:
    """A claim of the permutation study, where one configuration is other than it should be."""
    config = config or PermutationStudyConfig()
    made = {each: {**fields, **(changed if each == name else {})} for each, fields in GOOD.items()}
    made = [permutation.evidence(each, **fields) for each, fields in made.items() if only in (None, each)]
    table = cells.table(cells.of_splits(made, [claim_id]), config)
    (claim,) = (each for each in find_study("permutation").claims(config) if each.id == claim_id)
    return judge(claim, table)


def on_training_data_alone() -> JudgedClaim:
    """P4, whose training losses are all that there is of the run, taken for P1."""
    cell = permutation.evidence(PLAIN, **GOOD[PLAIN])
    cell.records.clear()
    config = PermutationStudyConfig()
    claim = next(each for each in find_study("permutation").claims(config) if each.id == "P1")
    return judge(claim, cells.table([cell], config))


PERMUTATION = [
    Adversary(
        "P1: nine perfect seeds and one at 99.89 %",
        "Rounded to a whole percent, all ten seeds are perfect.",
        lambda: of_permutation("P1", elimination=[1.0] * 9 + [0.9989]),
        REFUTED,  # the held-out set is counted through: there is no evaluation error
        says="1 of 10 seeds violates it; the worst is at 99.89 %",
    ),
    Adversary(
        "P1: the bad seed diverged",
        "The one seed that would have failed broke off, and leaves nine perfect ones.",
        lambda: of_permutation("P1", elimination=[1.0] * 9 + [0.0], frozen=[109]),
        INCONCLUSIVE,  # what is not known is missing, and counts
        leaning="agrees",
        says="1 of 10 seeds has no number",
    ),
    Adversary(
        "P1: perfect on a part of the held-out set",
        "Every seed is perfect on a sample of the held-out sequences, where rare failures are not seen.",
        lambda: of_permutation("P1", exhaustive=False),
        INCONCLUSIVE,  # the protocol counts through all of them
        here=REPRODUCED,
        leaning="agrees",
        says="measured on a part of the held-out sequences",
    ),
    Adversary(
        "P1: failing after 3 of 20 epochs",
        "The claim of the source fails in every seed, in a run that is over before the source's begins to learn.",
        lambda: of_permutation("P1", config=PermutationStudyConfig(epochs_plain=3), elimination=0.2),
        INCONCLUSIVE,
        here=REFUTED,
        leaning="disagrees",
        says="3 of 20 epochs",
    ),
    Adversary(
        "P1: training data for held-out data",
        "The run has numbers on training data only, which are perfect.",
        on_training_data_alone,
        NOT_RUN,  # a training loss is no held-out accuracy
        says="not measured",
    ),
    Adversary(
        "P4: a lower floor for fewer values",
        "With four values the loss settles at the floor of five, far above its own.",
        lambda: of_permutation("P4", config=PermutationStudyConfig(values=4)),
        INCONCLUSIVE,  # the floor is that of the run's own task, and the task is not the source's
        here=REFUTED,
        leaning="disagrees",
        says="4 instead of 5",
    ),
    Adversary(
        "P5: a seed that never recalls",
        "Nine seeds learn recall suddenly, and the tenth never does, so that it has no width.",
        lambda: of_permutation("P5", REPEATS, rise=[100.0] * 9 + [None]),
        INCONCLUSIVE,
        leaning="mixed",
        says="in 1 of 10 seeds it never happened",
    ),
    Adversary(
        "P7: one of two signs",
        "The tilt correlates with training counts, which alone would speak against the claim.",
        lambda: of_permutation("P7", tilt=0.3),
        REPRODUCED,  # refuted takes both signs, by the rule as it was registered
        says="train_minus_held_out",
    ),
    Adversary(
        "P10b: a theorem that fails in one seed",
        "The claim is structural, so that seeds are no sample; in one of them nothing changes.",
        lambda: of_permutation("P10b", REPEATS, last_row=[0.1] * 9 + [0.0]),
        REFUTED,
        says="1 of 10 cases violates it",
    ),
    Adversary(
        "P11: half of the comparison",
        "Four values are memorised, and nothing was trained on five.",
        lambda: of_permutation("P11", only=MEMORISING),
        INCONCLUSIVE,  # four and five is what the claim is about
        leaning="agrees",
        says="V = 5: not trained in this run",
    ),
]  # fmt: skip


# Depth

LEARNED = depth.staircase(depth.PAPER_SCALE, {1: 1, 2: 1, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5})
STAIRS = depth.staircase(depth.PAPER_SCALE, {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5})

NOTHING = depth.staircase(depth.PAPER_SCALE, dict.fromkeys(range(1, 9), 0))


def of_depth(claim_id: str, made=STAIRS, **changed) -> JudgedClaim:
    """A claim of the depth study on made-up models, with some fields of the configuration changed."""
    config = depth.PAPER_SCALE.model_copy(update=changed)
    (claim,) = (each for each in find_study("depth").claims(config) if each.id == claim_id)
    return judge(claim, depth.evidence_of(config, made))


def timed(*times) -> JudgedClaim:
    """R3, where the deepest models learned the steps at these times."""
    return of_depth("R3", depth.changed(LEARNED, "IC", 8, partial=[0.1] * 5, times=[times] * 8))


def first_never_learned(count: int) -> depth.Made:
    """Stairs, but some seeds never learn the first step, and all others at the same depths."""
    made = {}
    for each, models in STAIRS.items():
        without = [[0.75, *models.partial[1:]]] * count
        kept = [models.partial] * (models.seeds - count)
        made[each] = replace(models, by_seed=without + kept) if each.asked == "IC" else models
    return made


DEPTH = [
    Adversary(
        "R1: one run of 64 below",
        "Sixty-three runs stay at the plateau, and one finds the way.",
        lambda: of_depth("R1", depth.changed(STAIRS, "non-IC", 5, losses=[0.75] * 7 + [0.6])),
        REFUTED,
        says="1 of 64 runs violates it beyond evaluation error",
    ),
    Adversary(
        "R1: the run that learned broke off",
        "The run that would have refuted diverged.",
        lambda: of_depth("R1", depth.changed(STAIRS, "non-IC", 5, diverged=(3,))),
        INCONCLUSIVE,
        leaning="agrees",
        says="1 of 64 runs has no number",
    ),
    Adversary(
        "R1: a lower plateau",
        "With two chains the loss of a model that learned nothing is 0.5, far below the threshold of 0.7.",
        lambda: of_depth("R1", {each: replace(of, losses=[0.5] * 8) for each, of in STAIRS.items()}, chains=2),
        INCONCLUSIVE,  # four chains are the source's; here the threshold is that share of the lower plateau
        here=REPRODUCED,
        leaning="agrees",
        says="chains 2, not 4",
    ),
    Adversary(
        "R1: a higher plateau",
        "With ten chains a loss of 0.75 is above the threshold of 0.7, and far below the plateau of 0.9.",
        lambda: of_depth("R1", chains=10),
        INCONCLUSIVE,
        here=REFUTED,  # every model has learned something
        leaning="disagrees",
        says="chains 10, not 4",
    ),
    Adversary(
        "R9b: a lower plateau",
        "With two chains a model of one layer that learned nothing is at 0.5, where learning was said to begin.",
        lambda: of_depth("R9b", depth.changed(STAIRS, "IC", 1, partial=[0.49] * 5), chains=2),
        INCONCLUSIVE,
        here=REPRODUCED,
        leaning="agrees",
        says="chains 2, not 4",
    ),
    Adversary(
        "R1: one reading that learns",
        "As configured nothing is learned; under another reading of the paper everything is.",
        lambda: one_reading_learns(),
        INCONCLUSIVE,
        leaning="mixed",
        says="refuted under no mask",
    ),
    Adversary(
        "R3: steps within one evaluation interval",
        "Three steps are learned between two evaluations, so that their order cannot be seen.",
        lambda: timed(1000.0, 1000.0, 1000.0, 2000.0, 3000.0),
        INCONCLUSIVE,  # a tie is no disorder, but one completion is not all
        here=REPRODUCED,
        leaning="agrees",
        says="not tried: gpt2-schedule, torch-base, torch-schedule",
    ),
    Adversary(
        "R3: a step out of order that was never learned before",
        "The second step is learned and the first never: without a time nothing is out of order.",
        lambda: timed(None, 3000.0, None, None, None),
        REFUTED,  # never is later than every time
        says="8 of 64 runs violate it",
    ),
    Adversary(
        "R1: nothing is ever learned",
        "No model without the curriculum learns the symbol, and none with it does either.",
        lambda: of_depth("R1", NOTHING),
        INCONCLUSIVE,  # the control has to learn it
        leaning="mixed",
        says="the control the same symbol with the curriculum, deepest models shows it too",
    ),
    Adversary(
        "R2: growth by convention",
        "Only the first step is ever learned; the others count one layer more than the deepest model.",
        lambda: of_depth("R2", depth.staircase(depth.PAPER_SCALE, {1: 0} | dict.fromkeys(range(2, 9), 1))),
        INCONCLUSIVE,  # among steps that are learned nothing grows
        leaning="mixed",
        says="the control the same of steps that some depth learns shows it too",
    ),
    Adversary(
        "R2: seeds that never learned the first step",
        "Two seeds learn the second step and never the first, and are left out as if they said nothing.",
        lambda: of_depth("R2", first_never_learned(2)),
        REFUTED,
        says="2 of 8 seeds violate it",
    ),
    Adversary(
        "R3: nothing but ties",
        "All steps of every model are learned within one evaluation interval, and no tie is a disorder.",
        lambda: of_depth("R3", all_at_once()),
        INCONCLUSIVE,  # the order was never seen
        leaning="mixed",
        says="the control neighbours of which the earlier one came first shows it too",
    ),
    Adversary(
        "R9b: no depth learns it",
        "No model below the bound learns the last symbol, nor does any above.",
        lambda: of_depth("R9b", NOTHING),
        INCONCLUSIVE,
        leaning="mixed",
        says="the control the deepest models shows it too",
    ),
    Adversary(
        "R9b: one depth below the bound that learns",
        "Models of two layers learn the last of five symbols, and those of one layer do not.",
        lambda: of_depth("R9b", depth.changed(STAIRS, "IC", 2, partial=[0.1] * 5)),
        REFUTED,
        says="8 of 16 runs violate it",
    ),
    Adversary(
        "R11: a slope for a jump",
        "Skill grows evenly with depth, and the range is large.",
        lambda: of_depth("R11", slope()),
        REFUTED,  # no single layer buys half of the range
        says="lies wholly below the threshold",
    ),
]  # fmt: skip


def one_reading_learns() -> JudgedClaim:
    """R1, where models without a mask learn."""
    config = depth.PAPER_SCALE.model_copy(
        update={"sweeps": ("specification",), "sweep_layers": depth.PAPER_SCALE.layers}
    )
    made = {
        each: depth.made_up(config, each, [0.2 if each.reading.changes else 0.75])
        for each in config.grid()
        if each.asked == "non-IC" and each.reading.changes in ({}, {"causal": False})
    }
    (claim,) = (each for each in find_study("depth").claims(config) if each.id == "R1")
    return judge(claim, depth.evidence_of(config, made))


def all_at_once() -> dict:
    """Models of which only the deepest learn anything, and these every step at one time."""
    stairs = depth.staircase(depth.PAPER_SCALE, dict.fromkeys(range(1, 8), 0) | {8: 5})
    return depth.changed(stairs, "IC", 8, times=[[1000.0] * 5] * 8)


def slope() -> dict:
    """Models that learn every step a little better with each layer."""
    return {
        each: depth.made_up(depth.PAPER_SCALE, each, [0.75 - 0.09 * (each.layers - 1)] * 5)
        for each in depth.PAPER_SCALE.base()
        if each.asked == "IC"
    }


# Circuits and emergence

SHORT = {"steps": 2, "checkpoint_every": 100}


@cache
def config_of(study: str):
    """The paper's configuration but for D, so that members of two steps can be judged."""
    short = SHORT | ({"crossed": 0} if study == "emergence" else {})
    return find_study(study).presets["paper"].model_copy(update=short)


@pytest.fixture(autouse=True)
def at_scale(monkeypatch):
    """Nothing departs from the paper."""
    monkeypatch.setattr(CircuitsConfig, "paper", {})
    monkeypatch.setattr(EmergenceConfig, "paper", {})


def of_circuits(claim_id: str, members, study="circuits", **given) -> JudgedClaim:
    """A claim about circuits of made-up members."""
    return circuits.judged(study, members, config_of(study), **given)[claim_id]


def jumping(made):
    """A member whose loss of x₁ falls at once, and once more after a jump."""
    return replace(made, curves={**made.curves, 1: ([0, 10, 20, 30, 1000], [0.75, 0.4, 0.75, 0.75, 0.05])})


def heads(formed=150.0, later=450.0):
    """One head more than a chain of two steps needs."""
    return [*induction(formed, later), path(3, "query", "second 2", later, 2, rules=0.3)]


def eight(**changes):
    """As many members as the paper has, each with that circuit."""
    return [member(n, heads(), **changes) for n in range(8)]


MANY = [path(layer, "query", "second 2", 450, 2) for layer in range(4, 8)]

CIRCUITS = [
    Adversary(
        "R4: the mean of those that learned",
        "Eight members reach the loss, and one that learned nothing could be left out as a failure of training.",
        lambda: of_circuits("R4", [*eight(), member(8, loss=0.7)], losses=[0.05] * 8 + [0.7]),
        INCONCLUSIVE,  # every member counts
        leaning="mixed",
        says="reaches across the threshold",
    ),
    Adversary(
        "R5: few heads by one of two counts",
        "The circuit by its rules has few heads, the one that also holds recomputed has many.",
        lambda: of_circuits("R5", [member(n, [*heads(), *MANY]) for n in range(8)], by_rules=eight()),
        INCONCLUSIVE,
        leaning="mixed",
        says="the ways to measure it disagree",
    ),
    Adversary(
        "R5: the strange one was not read",
        "Eight members are read and agree; the ninth learned the chain, and no circuit was found.",
        lambda: of_circuits(
            "R5", [member(n, heads(), verdict="unexplained: x" if n == 8 else "read") for n in range(9)]
        ),
        INCONCLUSIVE,
        leaning="agrees",
        says="1 of 9 seeds has no number, which counts as a violation",
    ),
    Adversary(
        "R6: seeds that differ as much as two readings",
        "Every two seeds have different circuits, and so have two readings of one member.",
        lambda: of_circuits("R6", eight(), again=100),
        INCONCLUSIVE,  # a difference needs its null, and a refutation every completion
        here=REFUTED,
        leaning="mixed",
        says="lies wholly below the threshold.*not tried: gpt2-base, gpt2-schedule, torch-base(;|$)",
    ),
    Adversary(
        "R7: good where it was admitted",
        "The circuit is good on the sequences that admitted it, and bad on others.",
        lambda: of_circuits("R7", eight(), unseen=[unseen_of(each, loss=0.09) for each in eight()]),
        INCONCLUSIVE,
        here=REFUTED,
        leaning="mixed",
        says="lies wholly above the threshold",
    ),
    Adversary(
        "R8: members that share their data",
        "Three independent members and nine that share initial weights or data with them make twelve.",
        lambda: of_circuits(
            "R8",
            [
                *(member(n, heads(), loss=0.03) for n in range(3)),
                *(member(n, heads(), loss=0.03, init=n % 3, data=n) for n in range(3, 12)),
            ],
            "emergence",
        ),
        INCONCLUSIVE,  # three are independent, and eight are needed
        leaning="agrees",
        says="3 seeds, needs 8",
    ),
    Adversary(
        "R8: refuted by the batch that was affordable",
        "Heads form in the wrong order in every member, trained with one of two batches that the paper may mean.",
        lambda: of_circuits(
            "R8", [member(n, induction(formed=450.0, later=150.0), loss=0.03) for n in range(8)], "emergence"
        ),
        INCONCLUSIVE,
        here=REFUTED,
        leaning="mixed",
        says="not tried: gpt2-base, gpt2-schedule, torch-base, a batch of 32,768",
    ),
    Adversary(
        "R12: within one interval between checkpoints",
        "The loss falls before the head has formed, but by less than the time between two checkpoints.",
        lambda: of_circuits(
            "R12", [member(n, induction(), falls={1: 80.0, 2: 600.0}) for n in range(8)], "emergence"
        ),
        INCONCLUSIVE,  # a tie is no violation, but one completion is not all
        here=REPRODUCED,
        leaning="agrees",
        says="not tried: gpt2-base, gpt2-schedule, torch-base",
    ),
    Adversary(
        "R12: one member whose loss falls first",
        "In one member of eight the loss of one symbol falls well before its first read.",
        lambda: of_circuits(
            "R12",
            [member(n, induction(), falls={1: 40.0 if n == 5 else 300.0, 2: 600.0}) for n in range(8)],
        ),
        REFUTED,
        says="1 of 8 seeds violates it",
    ),
    Adversary(
        "R12: refuted by the batch that was affordable",
        "The loss falls first in every member, trained with one of two batches that the paper may mean.",
        lambda: of_circuits(
            "R12", [member(n, induction(), falls={1: 40.0, 2: 600.0}) for n in range(8)], "emergence"
        ),
        INCONCLUSIVE,
        here=REFUTED,
        leaning="disagrees",
        says="not tried: a batch of 32,768",
    ),
    Adversary(
        "R12: a jump that makes every loss fall late",
        "The loss falls well before the head has formed, jumps up once more, and falls for good long after.",
        lambda: of_circuits("R12", [jumping(member(n, induction())) for n in range(8)]),
        INCONCLUSIVE,  # by the first fall it is violated
        leaning="mixed",
        says="the loss first falls",
    ),
]  # fmt: skip


# Language models


def unanswered(count: int) -> JudgedClaim:
    """R10, where so many of 500 questions of every kind have no acceptable answer, and all others a right one.

    Equations of D = 1 are all answered: else the claim would not be about the model.
    """
    config = LLM["paper"].model_copy(update={"model": ("a/b",)})

    def say(model, question, number):
        known = number % 500 >= count or (question.formulation, question.depth) == ("equations", 1)
        return [question.answer] if known else ["I would rather not say."]

    return llm.judged(llm.answered(config, say), config)


def mixtures(seeds: int = 10, control: bool = True, **right: int) -> JudgedClaim:
    """S6, where models answer so many of 97 questions rightly."""
    config = TinyLmConfig(training_steps=30_000, seeds=seeds, members_per_unit=5, control=control)
    scores = {"zipf": 97, "uniform": 97, "deepest": 13, **right}
    return tiny_lm.judged(tiny_lm.members_of(config, scores), config)


LANGUAGE = [
    Adversary(
        "R10: right where it answers",
        "Every acceptable answer is right, and a fifth of the questions have none.",
        lambda: unanswered(100),
        INCONCLUSIVE,  # counted as wrong, they take it below
        here=INCONCLUSIVE,
        leaning="agrees",
        says="without an acceptable answer",
    ),
    Adversary(
        "S6: one mixture carries the other",
        "Models of the uniform mixture are perfect; those of Zipf's, which the claim is about, are not.",
        lambda: mixtures(zipf=80),
        REFUTED,
        says="10 of 10 seeds violate it",
    ),
    Adversary(
        "S6: no control",
        "Both mixtures are perfect, and nobody asks what the deepest texts alone would do.",
        lambda: mixtures(control=False),
        INCONCLUSIVE,
        here=REPRODUCED,
        leaning="agrees",
        says="no control",
    ),
    Adversary(
        "S6: the deepest texts are enough",
        "Both mixtures are perfect, and so is a model that saw the deepest texts alone.",
        lambda: mixtures(deepest=97),
        INCONCLUSIVE,  # then no mixture was needed
        leaning="mixed",
        says="shows it too",
    ),
    Adversary(
        "S6: nine seeds",
        "Nine seeds of each mixture make eighteen perfect members.",
        lambda: mixtures(seeds=9),
        INCONCLUSIVE,
        leaning="agrees",
        says="9 of 9 seeds agree; needs 10",
    ),
]  # fmt: skip

EVERY = [*PERMUTATION, *DEPTH, *CIRCUITS, *LANGUAGE]


@pytest.mark.parametrize("adversary", EVERY, ids=lambda adversary: adversary.name)
def test_it_is_judged_rightly(adversary):
    adversary.check()


def test_without_the_trick_the_same_run_reproduces_the_claim():
    """The made-up runs are good ones but for what is changed in each."""
    found = [of_permutation(each) for each in ("P1", "P4", "P5", "P10b", "P7")]
    found += [of_depth(each) for each in ("R1", "R3", "R9a", "R9b", "R9c", "R11")]
    found += [of_circuits(each, eight()) for each in ("R4", "R5", "R6", "R7", "R12")]
    found += [of_circuits("R8", eight(loss=0.03), "emergence"), unanswered(0), mixtures()]
    general = {"R1", "R3", "R9b", "R9c", "R11", "R12"}  # what one completion alone reproduces is not yet
    wanted = {each.id: INCONCLUSIVE if each.id in general else REPRODUCED for each in found}
    assert {each.id: each.verdict for each in found} == wanted
    assert {each.here.verdict for each in found if each.here} == {REPRODUCED}
    assert math.isclose(FLOOR, math.log(120) / 5)


def test_the_page_lists_them_all():
    assert listed("The claims of the studies") == [adversary.row() for adversary in EVERY]
