"""What flows along the paths of a circuit, in plain loops: the slow obvious reference of `flow`.

Every question is a run of its own, from the bottom, in which some rows of one head bring home something else.
"""

from functools import partial

import torch

from hopscope.models.patterns import Uniform

from .plain import embedded, has, reads, through, usual, weights


class PlainFlow:
    """One circuit on one batch; arguments as of `plain.reads`, slots are (layer, head, role)."""

    def __init__(self, model, batch, roles, rules):
        self.model, self.batch, self.roles, self.rules = model, batch, roles, rules
        self.row_of = reads(model, batch, roles, rules, "recomputed")
        self.samples = range(batch.inputs.shape[1])
        self.streams = [embedded(model, inputs) for inputs in batch.inputs[0]]
        self.base = [self.inside(self.row_of, sample) for sample in self.samples]

    def inside(self, row_of, sample):
        """Every layer of a run on a sample."""
        layers = []
        through(self.model, self.streams[sample], usual(partial(row_of, sample)), layers)
        return layers

    def row(self, sample, layer, head, row):
        """What a row attends to in the circuit's own run."""
        return self.row_of(sample, layer, head, row, self.base[sample][layer].own[head])

    def at(self, slot, sample, layer, head, row) -> bool:
        return (layer, head) == slot[:2] and has(self.batch, self.roles[slot[2]], sample, row)

    def predictions(self, slot, output, later=None):
        """Predictions `[1, batch, readout, output]` where a slot's rows bring home something else.

        Args:
            slot: whose rows.
            output: what they bring home: a function of sample, row and the layer's `Inside`.
            later: what rows of later layers bring home: a function of sample, layer, head and row; by default,
                what follows is recomputed.
        """
        found = []
        for sample in self.samples:

            def output_of(layer, head, row, inside, sample=sample):
                if self.at(slot, sample, layer, head, row):
                    return output(sample, row, inside)
                if later is not None and layer > slot[0]:
                    return later(sample, layer, head, row)
                return usual(partial(self.row_of, sample))(layer, head, row, inside)

            found.append(through(self.model, self.streams[sample], output_of))
        return torch.stack(found)[None][:, :, list(self.model.config.readout_positions)]

    def carried(self, slot, others):
        """Where a slot's rows read from runs on other streams `[batch, position, model]`, under the same patterns."""
        runs = []
        for sample in self.samples:
            runs.append([])
            through(
                self.model,
                others[sample],
                lambda layer, head, row, inside, sample=sample: (
                    self.row(sample, layer, head, row) @ inside.value[head]
                ),
                runs[-1],
            )
        layer, head, _ = slot
        return self.predictions(
            slot,
            lambda sample, row, _: self.row(sample, layer, head, row) @ runs[sample][layer].value[head],
        )

    def used(self, slot, reader, part):
        """Where one input of a reader's rows comes from a run in which the slot reads uniformly."""
        without = reads(self.model, self.batch, self.roles, {**self.rules, slot: Uniform()}, "recomputed")
        runs = [self.inside(without, sample) for sample in self.samples]
        layer, head, _ = reader

        def output(sample, row, inside):
            other = runs[sample][layer]
            if part == "V":
                return self.row(sample, layer, head, row) @ other.value[head]
            query = (other if part == "Q" else inside).query[head, row]
            key = (other if part == "K" else inside).key[head]
            scores = key @ query / len(query) ** 0.5
            if self.model.config.causal:
                scores[row + 1 :] = -torch.inf
            return scores.softmax(0) @ inside.value[head]

        return self.predictions(reader, output)

    def noticed_by_the_readout(self, slot):
        """Where the slot reads uniformly, and later heads bring home what they do in the circuit's own run."""
        _, head, _ = slot
        return self.predictions(
            slot,
            lambda sample, row, inside: (
                weights(self.batch, self.model.config.causal, Uniform(), sample, row) @ inside.value[head]
            ),
            lambda sample, layer, head, row: (
                self.row(sample, layer, head, row) @ self.base[sample][layer].value[head]
            ),
        )
