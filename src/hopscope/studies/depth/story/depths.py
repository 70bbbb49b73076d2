"""What a number of layers buys: both panels of the paper's Figure 4, the accuracies, and the theory."""

from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.results import AllResults, Results
from hopscope.studies.depth.story.numbers import Numbers, final
from hopscope.studies.depth.values import LEARNED
from hopscope.studies.theory import exact_by_step, exact_of
from hopscope.studies.words import symbol
from hopscope.theory.information_flow import bound_layers, theorem_bound


def depth_section(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> Block:
    """Final losses by number of layers."""
    blocks = [
        text(
            f"Every point is a seed: its mean held-out loss over the last {config.final_window} training steps. Lines "
            "join the means, bars are 95 % bootstrap intervals over seeds. Triangles on the axis mark how many "
            "layers the information flow takes at least (below). All models are measured on the same "
            f"{config.evaluation_samples:,} held-out samples, so a level may lie a little off its expected value, and "
            "then does so for all of them."
        ),
        figure(
            "loss_by_depth",
            "Final held-out loss by number of layers, for models that are asked for the whole chain (IC) and for its "
            "last symbol alone (non-IC).",
            "Final loss against layers, one line for each formulation, with the plateau and the exact minimum.",
        ),
        figure(
            "partial_by_depth",
            "The same IC models, symbol by symbol: final partial loss by number of layers.",
            "Final partial loss against layers, one line for each symbol of the chain, with the exact "
            "minimum of each.",
        ),
    ]
    rows = [_row(results[each], numbers) for each in config.base()]
    blocks.append(
        table(
            ["task", "layers", "seeds", "final loss", "lowest to highest", "symbols learned by a seed"],
            rows,
            f"Final losses, mean over seeds [95 % interval]. A symbol counts as learned with a partial loss under "
            f"{LEARNED}.",
        )
    )
    return section("depths", "What a layer buys", *blocks)


def _row(found: Results, numbers: Numbers) -> list[str]:
    each = found.configuration
    learned = []
    for losses in zip(*(found.partial[step] for step in found.asked), strict=True):
        learned.append(sum(loss is not None and loss < LEARNED for loss in losses))
    what = f"symbols with a final partial loss under {LEARNED}, {found.name}"
    ends = {"lowest": min(learned)} | ({"highest": max(learned)} if max(learned) > min(learned) else {})
    shown = [
        numbers.add(end, str(end), "metrics.parquet", f"{name} number of {what}")
        for name, end in ends.items()
    ]
    return [
        f"{each.asked}, D = {each.steps}",
        str(each.layers),
        str(len(found.seeds)),
        numbers.estimate(found, found.loss, final()),
        numbers.range(found, found.loss, final()),
        f"{' to '.join(shown)} of {len(found.asked)}",
    ]


def accuracy_section(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> Block | None:
    """The deepest models on the axis that language models share."""
    if not config.layers:
        return None
    found = results[config.deepest()]
    rows = [
        [
            symbol(step),
            numbers.estimate(found, found.partial[step], final(step)),
            numbers.estimate(found, found.accuracy[step], f"accuracy of {symbol(step)}", _files(found)),
            numbers.range(found, found.accuracy[step], f"accuracy of {symbol(step)}", _files(found)),
        ]
        for step in found.asked
    ]
    guess = config.task(config.deepest()).guess
    return section(
        "accuracy",
        "How often the right chain is named",
        text(
            "A vector is not right or wrong, but the candidate nearest to it is. This turns predictions into "
            "answers, on the axis that small models share with language models: the share of queries whose nearest "
            f"candidate, among the symbols of all {config.chains} chains, is the right one. Guessing gives {guess:g}."
        ),
        table(
            ["symbol", "final partial loss", "accuracy", "lowest to highest seed"],
            rows,
            f"{found.name}, {len(found.seeds)} seeds: mean [95 % interval]. Losses over the final window, accuracy at "
            f"the last checkpoint on {config.analysis_samples:,} held-out samples.",
        ),
    )


def _files(found: Results) -> str:
    return found.files[0] if len(set(found.files)) == 1 else "units/*/" + found.files[0].split("/", 2)[2]


def theory_section(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> Block:
    """The bound, the exact minimum, and where they differ."""
    steps = config.steps if config.layers else config.steps_last
    by_step = exact_by_step(config, steps)
    rows = [
        [symbol(step), f"{theorem_bound(step):.2f}", str(bound_layers(step)), str(layers)]
        for step, layers in by_step.items()
    ]
    mask = "with a causal mask" if config.causal else "without a mask"
    exact = numbers.add(exact_of(config, steps), str(exact_of(config, steps)), "config.json",
                        f"exact_layers({steps}) of hopscope theory")  # fmt: skip
    return section(
        "theory",
        "What the information flow allows",
        text(
            "The paper's model of attention: a position can attend to another only if they share a piece of "
            "information, a symbol or the position code of a pair, and then it receives all that the other holds. "
            f"Theorem 1 says that {symbol(steps)} cannot reach its query in fewer than log₃(2D) layers. The bound is "
            "valid and not tight: it lets what a position holds grow on both sides, while the query stands at one "
            f"end of its chain. Counting the same model through, {mask} and in the order of the pairs used here, it "
            f"takes {exact} layers."
        ),
        figure(
            "information_flow",
            "What each position of a chain can hold after each layer, in the paper's model.",
            "Positions of one chain in a row, with the pieces of information that each can hold, layer by layer.",
        ),
        table(
            ["symbol", "log₃(2k)", "layers by theorem 1", "exact minimum"],
            rows,
            f"Layers that x_k takes at least, {mask}; `hopscope theory --steps {steps}` prints them.",
        ),
        text(
            "These numbers bound the model of information flow, not every network. With blocks at fixed places, "
            "heads can also gather by position alone and compare what they gathered in an MLP. A trained model that "
            "learns a step below the exact minimum would be evidence against the model's first assumption."
        ),
    )
