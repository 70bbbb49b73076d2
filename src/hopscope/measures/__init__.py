"""Measures: functions that say what is measured of trained members, and those that every task can use.

A measure is given a `hopscope.Context` and returns numbers, which become rows of the evidence table.  It may return

* a mapping from metric to values `[member]`, `[member, layer]` or `[member, layer, head]` (a tensor or an array);
  `metric@name` is the metric for the part `name`, such as a group of samples;
* rows, one dict each: `metric`, `value` (one number for each member), and maybe `layer`, `head`, `part`, `split`,
  `step`, `file`, or `member`, if the row is of one member alone;
* nothing, if it saves arrays only (`context.save`).

This module loads no torch: files of studies import it, and listing studies stays quick.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from hopscope.errors import UserError
from hopscope.runs.hashing import content_hash
from hopscope.sources import source_hash

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.measures.context import Context
    from hopscope.tasks.batch import Batch

When = Literal["end", "checkpoints", "training", "run"]
"""After training; at every checkpoint; at every evaluation during training; once for the whole run, at its end."""

Outputs = Literal["classes", "vectors"]
"""What a task predicts."""

Function = Callable[["Context"], Any]

CHUNK = 4096
"""Samples of one forward pass, those of all members together: bounds memory, not results."""

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names that can be part of a file's name."""


@dataclass(frozen=True)
class Measure:
    """Something that is measured of trained members.

    Attributes:
        name: stands in the column `measure` of the evidence table.
        when: see `When`.
        function: measures.
        needs: names of measures that must be done before; their rows are `context.rows(name)`.
        outputs: what the task must predict, `"classes"` or `"vectors"`; `None`: either.
        source: hash of what decides its numbers, beside the run; a study fills it in, once.
    """

    name: str
    when: When
    function: Function
    needs: tuple[str, ...] = ()
    outputs: Outputs | None = None
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be a measure.

        Raises:
            UserError: a name that cannot be part of a file's name, an unknown `when`, or a function that cannot be
                called with a context alone.
        """
        if not FILE_NAME.fullmatch(self.name):
            raise UserError(
                f"measure: expected a name of letters, digits, '_', '.' and '-', found {self.name!r}"
            )
        if self.when not in get_args(When):
            raise UserError(
                f"measure {self.name}: expected when to be one of {', '.join(get_args(When))}, found {self.when!r}"
            )
        try:
            inspect.signature(self.function).bind(None)
        except TypeError:
            raise UserError(
                f"measure {self.name}: expected a function of one argument, the context, found "
                f"{self.name}{inspect.signature(self.function)}; give it what else it needs through a function that "
                "returns the measure"
            ) from None

    def __call__(self, context: "Context") -> Any:
        """Call the function with a context."""
        return self.function(context)

    def check(self, outputs: str) -> None:
        """Refuse a task that predicts something else than the measure reads.

        Raises:
            UserError: names both.
        """
        if self.outputs is not None and self.outputs != outputs:
            raise UserError(
                f"measure {self.name}: expected a task whose outputs are {self.outputs}, found {outputs}; leave it out"
            )


@overload
def measure(
    function: Function,
    *,
    when: When = "end",
    needs: Sequence[str | Measure] = (),
    name: str | None = None,
    outputs: Outputs | None = None,
) -> Measure: ...


@overload
def measure(
    function: None = None,
    *,
    when: When = "end",
    needs: Sequence[str | Measure] = (),
    name: str | None = None,
    outputs: Outputs | None = None,
) -> Callable[[Function], Measure]: ...


def measure(
    function: Function | None = None,
    *,
    when: When = "end",
    needs: Sequence[str | Measure] = (),
    name: str | None = None,
    outputs: Outputs | None = None,
) -> Measure | Callable[[Function], Measure]:
    """Make a measure of a function: `@hopscope.measure(when="checkpoints")`.

    A measure with arguments is a function that returns one:

        def attention_to(relation):
            @hopscope.measure(when="checkpoints", name=f"attention_to_{relation}")
            def attention(context): …
            return attention

    Args:
        function: what measures, where the decorator is used without arguments.
        when: `"end"`, `"checkpoints"`, `"training"` or `"run"`; see `When`.
        needs: measures, or their names, that must be done before.
        name: by default the function's.
        outputs: what the task must predict, `"classes"` or `"vectors"`; by default either.

    Returns:
        The `Measure`, or a decorator that makes it.

    Raises:
        UserError: see `Measure`.
    """
    needed = tuple(each.name if isinstance(each, Measure) else each for each in needs)

    def made(function: Function) -> Measure:
        if not callable(function):
            raise UserError(
                f"measure: expected a function of the context, found {function!r}; write @hopscope.measure(when=…)"
            )
        return Measure(name or str(getattr(function, "__name__", "")), when, function, needed, outputs)

    return made if function is None else made(function)


def as_measure(value: Any) -> Measure:
    """Check and return an entry of a study's `measures`.

    Raises:
        UserError: it is no measure.
    """
    if isinstance(value, Measure):
        return value
    name = getattr(value, "__name__", repr(value))
    remedy = f"write @hopscope.measure(when=…) before it, or call it if it returns a measure: {name}(…)"
    raise UserError(f"measures: expected measures, found {name}; {remedy}")


def source_of(measure: Measure, needed: Sequence[Measure] = ()) -> str:
    """Hash of what decides a measure's numbers: its name, its source, and those of the measures that it needs."""
    if measure.source:
        return measure.source
    own = [measure.name, measure.when, source_hash(measure.function)]
    return content_hash([*own, *(source_of(each) for each in needed)])


def stored_name(measure: Measure) -> str:
    """Name of the analysis (see `UnitFolder.analysis_path`) in which a measure's rows of a checkpoint are kept.

    A measure whose source has changed is another one: its numbers are measured anew.
    """
    return f"measured-{measure.name}-{source_of(measure)}"


def run_file(measure: Measure) -> str:
    """File, relative to the run, in which the rows of a measure of the whole run are kept."""
    return f"analysis/{stored_name(measure)}.json"


def in_order(measures: list[Measure], study: str) -> Iterator[Measure]:
    """Measures, each behind those that it needs, and with their sources.

    Raises:
        UserError: a needed measure is not there, has no rows by then, or they need each other in a circle.
    """
    known = {each.name: each for each in measures}
    for each in measures:
        for name in each.needs:
            if name not in known:
                raise UserError(
                    f"study {study!r}: expected the measure {name!r}, which {each.name!r} needs, among its measures, "
                    f"found {', '.join(known)}"
                )
            late = known[name].when == "training" or (known[name].when == "run" and each.when != "run")
            if late or each.when == "training":
                raise UserError(
                    f"study {study!r}: expected the measure {each.name!r} ({each.when}) to need measures of "
                    f"checkpoints, found {name!r} ({known[name].when})"
                )
    done: dict[str, Measure] = {}
    waiting = list(measures)
    while waiting:
        ready = [each for each in waiting if set(each.needs) <= set(done)]
        if not ready:
            raise UserError(
                f"study {study!r}: expected measures that can be ordered, found a circle of needs"
            )
        for each in ready:
            source = source_of(each, [done[name] for name in each.needs])
            done[each.name] = replace(each, source=source)
            yield done[each.name]
        waiting = [each for each in waiting if each.name not in done]


# Measures of any task.


@measure(outputs="classes")
def accuracy(context: "Context") -> None:
    """Accuracy of a task with class ids: it is recorded during training anyway, so nothing is left to do."""


def attention_to(relation: str) -> Measure:
    """Mean attention of every head to the partner of a row under a relation, at every checkpoint.

    The mean is over the readout rows that have a partner which they may see; a member without any such row has none.
    Metric `attention_to_<relation>`, by layer and head, and the same for each group of the held-out samples.

    Args:
        relation: one of the task's.
    """

    @measure(when="checkpoints", name="attention_to_" + re.sub(r"[^A-Za-z0-9_.-]", "_", relation))
    def attention(context: "Context") -> dict[str, "Tensor"]:
        import torch

        batch, config = context.held_out, context.ensemble.config
        if relation not in batch.relations:
            known = ", ".join(batch.relations) or "none: give the batch some"
            raise UserError(
                f"measure attention_to: expected a relation of the task ({known}), found {relation!r}"
            )
        found = []
        for part in _parts(batch, context):
            keys = part.relations[relation][..., list(config.readout_positions)]
            rows = torch.tensor(config.readout_positions, device=keys.device)
            seen = (keys >= 0) & (keys <= rows) if config.causal else keys >= 0
            patterns = _readout_patterns(context, part)
            index = keys.clamp(min=0)[:, None, :, None, :, None].expand(*patterns.shape[:-1], 1)
            to_partner = patterns.gather(-1, index)[..., 0]
            # Rows without a partner become NaN, which the mean leaves out.
            found.append(to_partner.masked_fill(~seen[:, None, :, None, :], torch.nan))
        attention = torch.cat(found, 2)
        means = {}
        for group, chosen in _groups(batch):
            of_group = attention.masked_fill(~chosen[:, None, :, None, None], torch.nan)
            means[f"attention_to_{relation}{group}"] = of_group.nanmean((2, 4))
        return means

    return attention


@measure(when="checkpoints")
def attention_entropy(context: "Context") -> dict[str, "Tensor"]:
    """Mean entropy of every head's attention at the readout rows, in nats, at every checkpoint.

    0: each row attends to one key.  Metric `attention_entropy`, by layer and head.
    """
    import torch

    parts = _parts(context.held_out, context)
    found = [torch.special.entr(_readout_patterns(context, part)).sum(-1) for part in parts]
    return {"attention_entropy": torch.cat(found, 2).mean((2, 4))}


@measure
def head_ablation(context: "Context") -> Iterator[dict[str, Any]]:
    """Everything that the task measures (loss, its parts, accuracy) without each head, at the end.

    A head is taken out by putting its mean output over the held-out samples in place, position by position.
    Metrics `<metric>_without_head`, by layer and head.
    """
    import torch

    config, batch = context.ensemble.config, context.held_out
    sites = [f"blocks.{layer}.attn.hook_z" for layer in range(config.layers)]
    sums = [_sites(context, part, sites, lambda z: z.sum(1)) for part in _parts(batch, context)]
    for layer, site in enumerate(sites):
        mean = torch.stack([each[site] for each in sums]).sum(0) / batch.inputs.shape[1]
        for head in range(config.heads):
            edit = {site: partial(_replaced_head, head=head, by=mean)}
            predictions = [context.ensemble.intervene(part, edit) for part in _parts(batch, context)]
            for metric, values in context.task.losses(torch.cat(predictions, 1), batch).items():
                name, at, group = metric.partition("@")
                yield {
                    "metric": f"{name}_without_head{at}{group}",
                    "value": values,
                    "layer": layer,
                    "head": head,
                }


def _replaced_head(z: "Tensor", head: int, by: "Tensor") -> "Tensor":
    """Head outputs `[member, batch, position, head, head_dim]`, those of one head replaced in all samples."""
    z[..., head, :] = by[:, None, :, head]
    return z


@measure
def by_readout(context: "Context") -> Iterator[dict[str, Any]]:
    """Loss (and, for classes, accuracy) at each readout position alone, at the end.

    The loss is the mean cross-entropy, or the mean squared error, of the samples that count at that position.  Metrics
    `loss_at` and `accuracy_at`; the part is the position.
    """
    import torch
    from torch.nn import functional

    from hopscope.tasks.losses import counted

    batch = context.held_out
    predictions = torch.cat([context.ensemble(part.inputs) for part in _parts(batch, context)], 1)
    targets = batch.targets.expand(len(predictions), *batch.targets.shape[1:])
    measured: dict[str, Tensor] = {}
    if targets.is_floating_point():
        measured["loss_at"] = (predictions - targets).square().mean(-1)
    else:
        measured["loss_at"] = functional.cross_entropy(predictions.movedim(-1, 1), targets, reduction="none")
        measured["accuracy_at"] = (predictions.argmax(-1) == targets).float()
    counts = counted(batch)
    for metric, values in measured.items():
        means = values.masked_fill(~counts, torch.nan).nanmean(1)
        for place, position in enumerate(context.ensemble.config.readout_positions):
            yield {"metric": metric, "value": means[:, place], "part": str(position)}


def _parts(batch: "Batch", context: "Context") -> "Iterator[Batch]":
    """The samples, a few at a time."""
    size = max(1, CHUNK // len(context.ensemble))
    for start in range(0, batch.inputs.shape[1], size):
        yield batch.take(slice(start, start + size))


def _sites(
    context: "Context", part: "Batch", names: Sequence[str], kept: "Callable[[Tensor], Tensor]"
) -> "dict[str, Tensor]":
    """Return reduced tensors of some sites of one forward pass; a cache would hold all sites at once."""
    found: dict[str, Tensor] = {}

    def visit(tensor: "Tensor", name: str) -> "Tensor":
        found[name] = kept(tensor)
        return tensor

    context.ensemble.intervene(part, {name: partial(visit, name=name) for name in names})
    return found


def _readout_patterns(context: "Context", part: "Batch") -> "Tensor":
    """Attention of the readout rows, `[member, layer, batch, head, readout, key]`."""
    import torch

    config = context.ensemble.config
    rows = list(config.readout_positions)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(config.layers)]
    found = _sites(context, part, names, lambda pattern: pattern[..., rows, :])
    return torch.stack([found[name] for name in names], 1)


def _groups(batch: "Batch") -> "Iterator[tuple[str, Tensor]]":
    """Give the suffix of a metric's name and a mask of samples `[#member, batch]`: all samples, then each group."""
    import torch

    yield "", torch.ones(1, batch.inputs.shape[1], dtype=torch.bool, device=batch.inputs.device)
    for name, chosen in batch.groups.items():
        yield f"@{name}", chosen
