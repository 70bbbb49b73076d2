"""From members to the judgement of claim R8 (paper, section 9)."""

from collections.abc import Sequence

from hopscope.claims import Criterion, Judgement, combine_parts, judge_always, judge_mean, not_run
from hopscope.claims.crossings import Order, order
from hopscope.studies.chains.evidence import Member, seeds_of
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.emergence.events import alive, out_of_order

LEAST_MODELS = 8
"""Seeds that stand for the paper's one model."""

R8 = {
    "loss": Criterion(between=(0.015, 0.06)),
    "loss under the rules": Criterion(between=(0.015, 0.06)),
    "hops out of order": Criterion(at_most=0.0),
    "paths before the induction head": Criterion(at_most=0.0),
}


def before_induction(member: Member) -> int | None:
    """Paths that only later steps need and that had formed before all paths of the first step had.

    Returns:
        None for a member without paths for the first step, or without later ones.
    """
    first = member.hop_formed(1)
    later = [path for path in member.paths if path.needed_for is not None and path.needed_for > 1]
    if first is None or not later:
        return None
    return sum(order(member.formed(path), first) is Order.BEFORE for path in later)


def r8(members: Sequence[Member], config: EmergenceConfig) -> Judgement:
    """What the model reaches, what its circuit reaches, and the order in which its heads form."""
    seeds = alive(seeds_of(members))
    read = [member for member in seeds if member.was_read and member.paths]
    if not seeds:
        return not_run("no member was trained to its end")
    missing = ", ".join(config.departures)
    names = list(R8)
    orders = [out_of_order(member, config.steps) for member in read]
    early = [before_induction(member) for member in read]
    losses = {
        names[0]: [member.loss for member in seeds if member.loss is not None],
        names[1]: [member.reading["loss"]["rules"] for member in read],
    }
    parts = {
        name: judge_mean(
            values, R8[name], min_seeds=LEAST_MODELS, at_scale=not missing, missing=missing if not n else ""
        )
        for n, (name, values) in enumerate(losses.items())
    }
    for name, counts in ((names[2], orders), (names[3], early)):
        known = [float(count) for count in counts if count is not None]
        parts[name] = judge_always(known, R8[name], source_n=1, at_scale=not missing)
    return combine_parts(parts)
