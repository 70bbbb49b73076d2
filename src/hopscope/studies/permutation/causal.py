"""Causal tests of one-layer permutation models: the sequences, and what is changed on them.  Loads torch.

A *repeat* has its repeated x in the last slot; its copy and the y of that are *first* of the earlier pairs, and tests
ask what happens when the *second* takes its place.  Controls exchange second and *third*.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope import rng
from hopscope.circuits.interventions import Site, SwapAttention, SwapValues
from hopscope.models.sites import calling
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.answers import PIECE, ByMember, cached

Edit = list[Any] | Callable[[Tensor], Any]
"""What is changed: interventions, or what gives functions by site for the sequences of some numbers."""

SEQUENCES = 3000
"""Most repeats, and most plain sequences, that are looked at: at V = 5 all 2,880 plain ones."""

PATTERN, HEADS, MLP = "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_z", "blocks.0.hook_mlp_out"


def put(site: str, values: Tensor, head: int | None = None) -> Edit:
    """The last row of a site (of one head) becomes that of values `[member, #sequence, #position, …]`."""
    where = (slice(None), slice(None), -1, *(() if head is None else (head,)))

    def edit(at: Tensor) -> Any:
        def replaced(tensor: Tensor) -> Tensor:
            own = values[:, at] if values.shape[1] > 1 else values
            tensor[where] = own.expand_as(tensor)[where]
            return tensor

        return {site: replaced}

    return edit


def swap(what: str, one: str, other: str) -> Edit:
    """Two earlier pairs exchange, for the last row, their `y` or `code` (as values alone), or `attention` to the x."""
    kind = "y" if what == "y" else "x"
    first, second = (Site(roles={"place": 1}, relation=f"{kind}_{each}") for each in (one, other))
    if what == "attention":
        return [SwapAttention(layer=0, rows={"place": 1}, first=first, second=second)]
    return [SwapValues(layer=0, what="symbol" if what == "y" else "position", first=first, second=second)]


class Bench:
    """A one-layer ensemble and the sequences that it is tested on, those with a repeat first.

    Attributes:
        model, batch: with roles `place` (1 at the last row) and `kind`, and relations `x_first`, `y_first`, `x_second`
            … from every row.
        repeat, right: of each sequence whether it has a repeat, and its answer.
        donor: of a repeat the same pairs with second's x repeated; `any`: a sequence drawn from all.
    """

    def __init__(self, model: Transformer, held_out: bool = True):
        task: Any = model.task
        every, sources = task.listed("plain", held_out), task.values - 1
        xs = every.inputs[0, :, ::2]
        mappings = torch.zeros_like(xs).scatter(-1, xs - 1, every.targets[0])
        ranked = rng.bits(task.split_seed, "probe", 0, torch.arange(len(xs)))[:, 0].argsort(stable=True)
        groups, plain = (ranked[:count].sort().values for count in (SEQUENCES // sources, SEQUENCES))
        # A group is one mapping and order with each of its sources.
        group, single = torch.arange(len(groups)).repeat_interleave(sources), torch.arange(len(plain))
        slot, repeats = torch.arange(len(group)) % sources, len(group)
        first, own = torch.cat((slot, single % sources)), torch.cat((group, single))
        others = [(first + 1 + (own + more) % (sources - 1)) % sources for more in range(min(sources - 1, 2))]
        chosen = torch.cat((groups[group], plain))
        orders, here = xs[chosen], torch.arange(len(chosen))
        orders[:repeats, -1] = orders[:repeats].gather(-1, slot[:, None])[:, 0]
        batch, self.repeat = task.sequences(orders[None], mappings[chosen][None]), here < repeats
        shape, position = batch.inputs.shape, torch.arange(batch.inputs.shape[-1])
        relations = {
            f"{kind}_{name}": (2 * place + offset)[None, :, None].expand(shape)
            for name, place in zip(("first", "second", "third"), (first, *others), strict=False)
            for kind, offset in (("x", 0), ("y", 1))
        }
        roles = {"place": (position == position[-1]).expand(shape).long(), "kind": batch.roles["kind"]}
        self.model, self.task, self.right = model, task, batch.targets[0, :, -1]
        self.batch = replace(batch, roles=roles, relations=relations)
        self.donor = torch.cat((here[:repeats] - slot + others[0][:repeats], here[repeats:]))
        self.any = rng.bits(task.split_seed, "resample", 0, here)[:, 0].argsort(stable=True)

    def logits(self, edit: Edit) -> Float[Tensor, "member sequence position output"]:
        """At every position.  All tests take one path: what must not change then does not by a single bit."""
        found = []
        for at in torch.arange(len(self.right)).split(PIECE):
            part = self.batch.take(at)
            functions = calling(self.model.site_functions(part, edit(at) if callable(edit) else edit))
            found.append(self.model(part.inputs, functions, every_position=True))
        return torch.cat(found, 1)

    def hits(self, edit: Edit) -> dict[str, Float[Tensor, "member _"]]:
        """1 where the last answer is right, with a repeat (`recall`) and without (`elimination`), or, with one, the
        donor's (`to_other`)."""
        answers, repeat = self.logits(edit)[:, :, -1].argmax(-1), self.repeat
        right, other = ((answers == each).double() for each in (self.right, self.right[self.donor]))
        return {"recall": right[:, repeat], "elimination": right[:, ~repeat], "to_other": other[:, repeat]}

    def changes(self, clean: Tensor, edit: Edit) -> dict[str, tuple[ByMember, ByMember]]:
        """By kind of sequence the largest change of any of the clean logits at the last row, and at those before."""
        moved = (self.logits(edit) - clean).abs().amax(-1)
        rows = {"repeats": moved[:, self.repeat].amax(1), "plain": moved[:, ~self.repeat].amax(1)}
        return {kind: (each[:, -1], each[:, :-1].amax(1)) for kind, each in rows.items()}

    def mean(self, site: str) -> Float[Tensor, "member 1 1 ..."]:
        """Of a site at the last row, over the mixture of repeats and plain sequences that the members are trained on.

        A mean over one kind of sequence would tell the model which kind it sees.
        """
        train, ratio = Bench(self.model, held_out=False), self.task.repeat_ratio
        values = cached(self.model, train.batch.inputs, site)[:, :, -1:]
        repeats, plain = (values[:, of].mean(1, keepdim=True) for of in (train.repeat, ~train.repeat))
        return ratio * repeats + (1.0 - ratio) * plain

    def heat_map(self) -> dict[str, Float[Tensor, "member head"]]:
        """What one reads off mean attention maps without a repeat."""
        mean = cached(self.model, self.batch.inputs, PATTERN)[:, ~self.repeat].double().mean(1)
        return {
            "x_rows_to_earlier_y": mean[..., 2::2, 1::2].sum(-1).mean(-1),
            "y_rows_to_themselves": mean.diagonal(0, -2, -1)[..., 1::2].mean(-1),
            "x_rows_to_preceding_y": mean.diagonal(-1, -2, -1)[..., 1::2].mean(-1),
        }

    def random_rule(self) -> dict[str, Any]:
        seeds, size = torch.tensor([self.task.split_seed]), self.batch.inputs.shape[-1]
        drawn = rng.tensor(rng.uniform, seeds, "intervene", 0, (size, size))[0].tril()
        return {"kind": "matrix", "weights": (drawn / drawn.sum(-1, keepdim=True)).tolist()}
