"""The page of the study in words; every number with the file and the key it came from."""

from collections.abc import Sequence
from typing import Any

from hopscope.claims import Ledger
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.ledger import told
from hopscope.studies.numbers import DASH, PageNumbers, written
from hopscope.studies.tiny_lm.circuits import circuit_section
from hopscope.studies.tiny_lm.config import LEARNED, TinyLmConfig
from hopscope.studies.tiny_lm.evidence import Member
from hopscope.studies.tiny_lm.mixtures import mixtures
from hopscope.studies.words import counted
from hopscope.tasks.text import TextConfig, questions

SCHEMA_VERSION = 1


def write_story(run: RunFolder, config: TinyLmConfig, members: Sequence[Member], ledger: Ledger) -> None:
    """Write `story.json`."""
    numbers = PageNumbers()
    sections = [
        _task(config),
        *mixtures(config, members, numbers),
        section("verdicts", "What the ledger says", {"kind": "verdicts"}),
        _exam(config, members, numbers),
        _learning(config, members, numbers),
        circuit_section(config, members, numbers),
        _beyond(config, members),
    ]
    run.write_json(
        "story.json",
        {
            "schema_version": SCHEMA_VERSION,
            "title": "A small language model of our own, asked like any other",
            "subtitle": f"{counted(len(members), 'model')}, asked {config.questions} held-out questions of each depth",
            "numbers": numbers.entries,
            "claims": told(ledger),
            "sections": sections,
        },
    )


def _task(config: TinyLmConfig) -> Block:
    example = next(
        questions(TextConfig(formulation="equations", depth=config.depths[-1], chains=config.chains), 1, 0)
    )
    *lines, question = example.prompt.split("\n")
    depths = ", ".join(map(str, config.depths))
    asked = (
        f"A question in equations, of depth {config.depths[-1]}: {'; '.join(lines)}. {question} The answer is "
        f"{example.answer}. Each name stands for a value or for another name, and the question is answered by "
        f"following the equations, one step of retrieval for each. A guess is right one time in {config.chains}."
    )
    trained = f"The models read words and signs, and are trained to go on with texts of depth {depths}. "
    held_out = "Held-out questions are the paper's own, and ask a mapping of names to values that no training text has."
    words = (asked, trained + _curriculum(config), held_out)
    return section("task", "What is asked", text("\n\n".join(words)))


def _curriculum(config: TinyLmConfig) -> str:
    """How training texts differ from the questions that are asked in the end."""
    parts = []
    if config.lines == "earlier":
        parts.append("a line may name anything told before, so that a deep text has shallow questions too")
    if config.asked == "any":
        parts.append("any name may be asked about, not only one of the last round")
    if config.repeated:
        parts.append(
            "behind the answer the lines are told once more, so that there is much to retrieve in one step"
        )
    if not parts:
        return "Training texts are written as the paper's questions."
    return f"Training texts are easier than the paper's: {'; '.join(parts)}."


def _share(share: dict[str, Any], member: Member, key: str, numbers: PageNumbers) -> str:
    if share["value"] is None:
        return DASH
    value, low, high = (
        numbers.add(share[name], written(share[name], True), member.file, f"{key}.{name}")
        for name in ("value", "low", "high")
    )
    return f"{value} [{low}, {high}]"


def _exam(config: TinyLmConfig, members: Sequence[Member], numbers: PageNumbers) -> Block:
    rows = []
    for each in members:
        for place, (depth, tally) in enumerate(each.tallies.items()):
            key = f"{each.key}.tallies.{place}"
            shares = [
                _share(tally[name], each, f"{key}.{name}", numbers)
                for name in ("accuracy", "first_accuracy", "acceptance")
            ]
            guess = numbers.add(tally["guess"], written(tally["guess"], True), each.file, f"{key}.guess")
            rows.append([each.name, str(depth), *shares, guess])
    caption = (
        f"Shares of {config.questions} held-out questions with 95 % Wilson intervals. Accuracy is that of the answers "
        "that were acceptable (the paper's measure), at most ten attempts; the models answer greedily."
    )
    columns = ["model", "D", "accuracy", "right at once", "acceptable at once", "guess"]
    diverged = [each.name for each in members if each.frozen]
    words = (
        "Every trained model is written as a Hugging Face folder, which Inspect knows as hopscope/FOLDER, and asked by "
        "the same tasks as any language model."
    )
    if diverged:
        words += f" Training of {', '.join(diverged)} diverged; there are no answers of it."
    return section(
        "exam",
        "What they answer",
        text(words),
        figure(
            "accuracy",
            "Accuracy by depth, each point a model with its Wilson interval over questions; dashed, a guess.",
            "Accuracy against the steps of the question, by mixture of depths in training, with the guess line.",
        ),
        table(columns, rows, caption),
    )


def _learning(config: TinyLmConfig, members: Sequence[Member], numbers: PageNumbers) -> Block:
    rows = []
    for each in members:
        cells = [each.name]
        for depth in config.depths:
            crossing = each.learned_at(depth)
            if crossing is None or crossing.time is None:
                cells.append("not within training" if crossing is not None else DASH)
                continue
            what = f"held-out accuracy at depth {depth} of member {each.member} reaches {LEARNED}, step"
            cells.append(numbers.add(crossing.time, f"{crossing.time:,.0f}", "metrics.parquet", what))
        rows.append(cells)
    columns = ["model", *(f"D = {depth}" for depth in config.depths)]
    return section(
        "learning",
        "How they learn",
        text(
            f"Each model has {config.layers} layers of {config.heads} heads, width {config.width}"
            f"{', and no MLPs' if not config.mlp_ratio else ''}. The paper's models on vectors learn the steps of "
            "a chain one after another, each within a short time; the curves and the table show whether these do."
        ),
        figure(
            "curves",
            "Held-out accuracy through training, a line for each depth; dashed, a guess.",
            "Accuracy against training step, one small chart for each model.",
        ),
        table(columns, rows, f"Step at which held-out accuracy reached {LEARNED:.0%}."),
    )


def _beyond(config: TinyLmConfig, members: Sequence[Member]) -> Block:
    folders = [each.folder for each in members if each.folder and not each.frozen]
    where = folders[0] if folders else "models/member-0"
    depths = ",".join(map(str, config.depths))
    asked = f"-T depths={depths} -T chains={config.chains} -T held_out={config.held_out_share}"
    words = (
        f"The folder {where} of this run is a language model in GPT-2's layout that any tool reads. In the run's "
        f"folder, it is asked once more by: inspect eval hopscope/equations {asked} -T count={config.questions} "
        f"--temperature 0 --model hopscope/{where}"
    )
    return section("beyond", "Ask it yourself", text(words))
