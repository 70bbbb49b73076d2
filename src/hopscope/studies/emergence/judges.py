"""From members to the judgement of claim R8 (paper, section 9)."""

from collections.abc import Sequence

from hopscope.claims import Criterion, Judgement, combine_parts, judge_always, judge_mean, not_run
from hopscope.claims.crossings import Order, order
from hopscope.studies.chains.evidence import Member, seeds_of
from hopscope.studies.chains.ledger import missing
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.emergence.events import followed, out_of_order

LEAST_MODELS = 8
"""Seeds that stand for the paper's one model."""

R8 = {
    "loss": Criterion(between=(0.015, 0.06)),
    "loss under the rules": Criterion(between=(0.015, 0.06)),
    "hops out of order": Criterion(at_most=0.0),
    "reads before the induction head": Criterion(at_most=0.0),
}


def before_induction(member: Member) -> int | None:
    """Reads of single tokens that only later steps need and that had formed before all reads for the first step had.

    Returns:
        None where no such order is known.
    """
    first = member.hop_formed(1)
    later = [path for step in member.partial if step > 1 for path in member.hop(step)]
    if first is None:
        return None
    orders = [order(member.formed(path), first) for path in later]
    known = [each for each in orders if each is not Order.UNKNOWN]
    return sum(each is Order.BEFORE for each in known) if known else None


def r8(members: Sequence[Member], config: EmergenceConfig) -> Judgement:
    """What the model reaches, what its circuit reaches, and the order in which its heads form."""
    seeds = [member for member in seeds_of(members) if not member.frozen]
    read = [member for member in followed(seeds) if member.learned_all]
    if not seeds:
        return not_run("no member was trained to its end")
    lack = missing(seeds_of(members), config)
    names = list(R8)
    orders = [out_of_order(member, config.steps) for member in read]
    early = [before_induction(member) for member in read]
    losses = {
        names[0]: [member.loss for member in seeds if member.loss is not None],
        names[1]: [member.reading["loss"]["rules"] for member in read],
    }
    parts = {
        name: judge_mean(
            values, R8[name], min_seeds=LEAST_MODELS, at_scale=not lack, missing=lack if not n else ""
        )
        for n, (name, values) in enumerate(losses.items())
    }
    for name, counts in ((names[2], orders), (names[3], early)):
        known = [float(count) for count in counts if count is not None]
        parts[name] = judge_always(known, R8[name], source_n=1, at_scale=not lack)
    return combine_parts(parts)
