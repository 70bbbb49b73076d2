"""Questions in equations as tokens: what a small language model is trained on (paper, section 4 and Appendix A.1).

The same texts as `tasks.text`, drawn on a device by the thousand: D rounds of N lines such as "b = a", the question
sentence, and in training the answer and the lines once more.  The model answers at the last token of the question.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope import rng
from hopscope.tasks.batch import NO_RELATION, Batch
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.device import DeviceTask
from hopscope.tasks.draws import Address, Draws
from hopscope.tasks.equations_layout import Drawn, Layout
from hopscope.tasks.losses import counted
from hopscope.tasks.text.split import held_out_mappings
from hopscope.tasks.text.tokens import numbered, read_words

PAPERS: Final = {"lines": "paper", "asked": "last"}
"""How the paper's questions are drawn."""


class EquationsTask(DeviceTask):
    """The task of one configuration on one device.

    Attributes:
        config: what the task is.
        vocabulary: tokens by number.

    Roles: `kind` (`given` and `found` are the left and the right symbol of a line), `step` (of a line: 1 is the round
    that the question asks for; 0 elsewhere), `round` (of a line: 1 is the first; behind the lines: the last), `slot`
    (of a word: its number in the question sentence), `chain` (the value in which a line's symbols, the query, or the
    words behind it end; -1 where there is none).
    Relations: `previous`, `pair_mate` (the other symbol of a line), `same_symbol` (from a name on the right, and from
    the query, to the left of the line that tells what it is), `query` (from the words behind it), and `hop_k` (what
    stands on the right after following k lines; words behind the query count as the query).
    """

    def __init__(
        self, config: EquationsConfig, device: torch.device | str = "cpu", examples: int | None = None
    ):
        """Make the tables of the task; `Task.on` explains `examples`."""
        super().__init__(config, device, examples)
        self.config, self.vocabulary = config, config.vocabulary
        self._layout = Layout(config, self.device)
        self._table = self._layout.table
        at = [[position in config.answered(depth) for position in self.readout] for depth in config.depths]
        # Weights are divided by how many readouts a text has on average, not those of this batch: a loss is a mean over
        # samples, so that the gradients of a batch's parts add up.
        self._average = sum(
            share * len(config.answered(depth))
            for share, depth in zip(config.shares, config.depths, strict=True)
        )
        self._asked = self._table(at)
        self._weight = len(self.readout) / self._average
        self._readout = self._table(self.readout)
        self._prompt_lengths = self._table([config.prompt_length(depth) for depth in config.depths])
        self._split()
        self._until = self._table(list(itertools.accumulate(config.shares))[:-1])

    def _split(self) -> None:
        """Tables of held-out and training mappings."""
        config, chains = self.config, self.config.chains
        held = held_out_mappings(chains, config.held_out_share, config.split_seed)
        trained = [order for order in itertools.permutations(range(chains)) if order not in set(held)]
        self._held, self._trained = self._table(held), self._table(trained)
        self._digits = self._table([chains**place for place in range(chains)])
        # A held-out mapping that was drawn in training gives way to another one.
        self._instead = torch.full((chains**chains,), -1, device=self.device)
        self._instead[(self._held * self._digits).sum(-1)] = torch.arange(
            len(held), device=self.device
        ) % len(trained)

    # Samples.

    def drawn(self, draws: Draws, *, annotate: bool = True) -> Batch:
        """Training texts at the addresses of some draws."""
        drawn = self._drawn(draws.address, self.config)
        last = self._layout.last_names(drawn)
        mapping = self._layout.value(drawn, last)
        instead = self._instead[(mapping * self._digits).sum(-1)]
        mapping = torch.where((instead >= 0)[..., None], self._trained[instead], mapping)
        return self._batch(self._with_mapping(drawn, mapping), annotate)

    def evaluation(self, count: int, depth: int, *, annotate: bool = True) -> Batch:
        """`count` held-out questions of one depth, with `member == 1`: all members answer the same."""
        return self.questions(self.config.split_seed, "evaluate", 0, count, depth, annotate=annotate)

    def questions(
        self,
        seed: int,
        stream: str,
        step: int,
        count: int,
        depth: int,
        *,
        familiar: bool = False,
        annotate: bool = True,
    ) -> Batch:
        """Questions of one depth, with the paper's lines and padding behind them.

        Args:
            seed, stream, step: where they are drawn from.
            count: how many.
            depth: number of rounds.
            familiar: with mappings that training may see, in place of held-out ones.
            annotate: whether roles and relations are worked out.

        Raises:
            ValueError: a depth that the task does not have.
        """
        if depth not in self.config.depths:
            raise ValueError(f"depth: expected one of {self.config.depths}, found {depth}")
        index = torch.arange(count, device=self.device)
        mappings = self._trained if familiar else self._held
        return self._questions(mappings, (self._table([[seed]]), stream, step, index), annotate, depth)

    def held_out_mixture(self, draws: Draws, *, annotate: bool = True) -> Batch:
        """Held-out questions of all depths, mixed as in training."""
        return self._questions(self._held, draws.address, annotate)

    def _questions(
        self,
        mappings: Int[Tensor, "mapping chain"],
        address: Address,
        annotate: bool,
        depth: int | None = None,
    ) -> Batch:
        drawn = self._drawn(address, self.config.model_copy(update=PAPERS), depth)
        words = rng.bits(*address, block=self._blocks)
        which = rng.integers(words[..., 0], words[..., 1], len(mappings))
        found = self._batch(self._with_mapping(drawn, mappings[which]), annotate)
        return self._prompts(found, self._prompt_lengths[drawn.depth][..., None])

    def _prompts(self, batch: Batch, length: Int[Tensor, "member batch 1"]) -> Batch:
        """The questions alone: what stands behind them becomes padding, and is not asked."""
        behind = torch.arange(self.positions, device=self.device) >= length
        roles = {
            name: torch.where(behind, NO_RELATION if name == "chain" else 0, role)
            for name, role in batch.roles.items()
        }
        unasked, weights = behind[..., self._readout], cast(Tensor, batch.weights)
        return replace(
            batch,
            inputs=torch.where(behind, 0, batch.inputs),
            targets=torch.where(unasked, 0, batch.targets),
            weights=torch.where(unasked, 0.0, weights),
            roles=roles,
        )

    @property
    def _blocks(self) -> int:
        """Blocks of random words of one text: one for each round, one for depth and query, some for the repetition."""
        names = self.config.chains * self.config.depths[-1]
        return self.config.depths[-1] + 1 + -(-names // 4)

    def _drawn(self, address: Address, config: EquationsConfig, rounds: int | None = None) -> Drawn:
        """All rounds of the deepest text, and what is asked; of a given depth, or of a drawn one."""
        chains, deepest = config.chains, config.depths[-1]
        blocks = [rng.bits(*address, block=block) for block in range(self._blocks)]
        places = torch.arange(chains, device=self.device)
        found, orders = [], []
        for number, words in enumerate(blocks[:deepest]):
            choices = chains * (number + 1)
            if config.lines == "paper":
                tie = rng.permutation_from_index(
                    rng.permutation_index(words[..., 0], words[..., 1], chains), chains
                )
                found.append(tie + chains * number)
            else:
                tie = rng.integers(words[..., 0], words[..., 1], choices**chains)
                found.append(tie[..., None] // choices**places % choices)
            orders.append(rng.permutation_index(words[..., 2], words[..., 3], chains))
        words = blocks[deepest]
        depth = (rng.uniform(words[..., 2])[..., None] >= self._until).sum(-1)
        if rounds is not None:
            depth = torch.full_like(depth, config.depths.index(rounds))
        names = chains * self._table(config.depths)[depth]
        among = names if config.asked == "any" else torch.full_like(names, chains)
        asked = chains + names - 1 - rng.integers(words[..., 0], words[..., 1], among)
        ranks = torch.cat(blocks[deepest + 1 :], -1)[..., : chains * deepest]
        # Equal words, which hardly ever come, are told apart by their place.
        repeats = ranks.argsort(dim=-1, stable=True).argsort(-1)
        shuffled = rng.permutation_from_index(torch.stack(orders, -1), chains)
        return Drawn(depth, torch.cat(found, -1), shuffled, asked, repeats)

    def _with_mapping(self, drawn: Drawn, mapping: Int[Tensor, "member batch chain"]) -> Drawn:
        """Other values where the chains of the last round's names end, so that the names have these."""
        chains = self.config.chains
        line = self._layout.last_names(drawn)
        for _ in range(self.config.depths[-1] - 1):
            following = self._layout.follow(drawn, line)
            line = torch.where(following >= chains, following, line)
        return drawn._replace(found=drawn.found.scatter(-1, line - chains, mapping))

    def _batch(self, drawn: Drawn, annotate: bool) -> Batch:
        tokens, source = self._layout.tokens(drawn)
        inputs, source, following = tokens[..., :-1], source[..., :-1], tokens[..., 1:]
        asked = self._asked[drawn.depth]
        targets = torch.where(asked, following[..., self._readout], 0)
        plain = Batch(inputs, targets, weights=asked * self._weight)
        if not annotate:
            return plain
        annotations = cache(lambda: self._layout.annotations(drawn, source))
        return replace(
            plain,
            groups=self._depth_groups(drawn),
            roles={name: lambda name=name: annotations()[0][name] for name in self._layout.roles},
            relations={name: lambda name=name: annotations()[1][name] for name in self._layout.relations},
        )

    def _depth_groups(self, drawn: Drawn) -> dict[str, Callable[[], Tensor]]:
        """Texts of each depth, where there are several."""
        depths = self.config.depths
        if len(depths) == 1:
            return {}
        return {f"D = {depth}": partial(drawn.depth.eq, number) for number, depth in enumerate(depths)}

    @property
    def symbols(self) -> Int[Tensor, " symbol"]:
        """Token numbers of the values, then of the names of each round."""
        return self._layout.tokens_of

    # Losses.

    def _answer(self, batch: Batch) -> tuple[Int[Tensor, "member batch"], Int[Tensor, "member batch"]]:
        """Number of each sample's first readout, and the answer there."""
        asked = counted(batch).int().argmax(-1)
        return asked, batch.targets.gather(-1, asked[..., None])[..., 0]

    def answered(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> tuple[Float[Tensor, "member batch output"], Int[Tensor, "#member batch"]]:
        """Each sample's prediction at the end of the question, and its answer (both as token numbers).

        A batch with `member == 1` is asked of every member.
        """
        asked, answers = self._answer(batch)
        asked = asked[..., None, None].expand(len(predictions), -1, 1, predictions.shape[-1])
        return predictions.gather(2, asked)[:, :, 0], answers

    def _shares(self, batch: Batch) -> Float[Tensor, "member batch readout"]:
        """Weight of each readout in the loss of its text: all tokens that are to be predicted count alike."""
        return counted(batch).float() / self._average

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Cross-entropy in nats: over all tokens that are to be predicted, as of any language model (training minimises
        it), and mean over the answers."""
        targets = batch.targets.expand(predictions.shape[:-1])
        found = functional.cross_entropy(predictions.movedim(-1, 1), targets, reduction="none")
        asked = self._answer(batch)[0][..., None].expand(len(found), -1, 1)
        answer = found.gather(-1, asked)[..., 0].mean(-1)
        return {"loss": (found * self._shares(batch)).sum(-1).mean(-1), "loss_answer": answer}

    def slope(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Float[Tensor, "member batch readout output"]:
        """Gradient of `"loss"` by the predictions."""
        slope = predictions.softmax(-1)
        targets = batch.targets.expand(predictions.shape[:-1])[..., None]
        slope.scatter_add_(-1, targets, torch.full_like(slope[..., :1], -1.0))
        return slope * (self._shares(batch)[..., None] / predictions.shape[1])

    # In words.

    def read(self, prompt: str) -> Int[Tensor, " position"]:
        """A text as token numbers, without padding.

        Raises:
            UserError: a word that the vocabulary lacks.
        """
        steps = f"at most {self.config.depths[-1]} steps"
        known = f"words of equations with {self.config.chains} chains and {steps}"
        return self._table(read_words(prompt, numbered(self.vocabulary), known))
