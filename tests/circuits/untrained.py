"""Untrained models of every shape under rules of every kind: what passes compute must not hang on what was learned."""

import torch

from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar
from hopscope.models.config import TransformerConfig
from hopscope.models.patterns import Identity, Learned, MeanMap, TwoTargets, Uniform
from hopscope.models.transformer import Transformer
from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask

SAMPLES, LAYERS, HEADS = 2, 3, 2
TASKS = {
    "chain": lambda: RetrievalTask(RetrievalConfig(steps=2, chains=5)),
    "any order": lambda: RetrievalTask(RetrievalConfig(steps=3, chains=2, order="random")),
    "graph": lambda: ConditionalTask(ConditionalConfig(chains=2)),
}
SHAPES = {
    "pre-norm, causal": {"mlp_ratio": 0.0},
    "pre-norm, MLP, not causal": {"causal": False},
    "post-norm": {"norm": "post", "activation": "relu"},
    "some rows read out": {"readout": (0, 3, 10)},
    "one layer, every third row read out": {"layers": 1, "readout": (2, 5, 8, 11)},
}


def execution(task: str, shape: str, seed: int = 7, strength: float = 1.0) -> Execution:
    """An untrained model on a few samples; with more strength, heads look sharply and what they read matters."""
    made = TASKS[task]()
    usual = {"layers": LAYERS, "readout": made.readout}
    config = TransformerConfig(
        heads=HEADS, width=11, head_dim=13, positions="carried", length=made.positions,
        position_size=made.config.symbol_dim, input_kind="vectors", input_size=made.input_size,
        output_size=made.output_size, init="encoder", **usual | SHAPES[shape],
    )  # fmt: skip
    model = Transformer.initial(config, torch.tensor([seed]))
    for name, weight in model.weights.items():
        if ".attention." in name and name.endswith("weight"):
            weight.mul_(strength)
    batch = made.sample(torch.tensor([seed]), "test", 0, SAMPLES)
    return Execution(model, Grammar(batch, causal=config.causal, words=made.role_values))


def everywhere(found: Execution, seed: int) -> dict:
    """Some rule for every slot, of every kind."""
    rules = {}
    for number, slot in enumerate(found.slots):
        singles = found.grammar.rules(slot[2])
        choices = [Uniform(), Identity(), MeanMap(), Learned(), *singles]
        if len(singles) > 3:
            choices.append(TwoTargets(first=singles[-1], second=singles[2], share=0.3))
        rules[slot] = choices[(7 * number + seed) % len(choices)]
    return rules
