"""The page of the study of language models in words; every number with the file and the key it came from."""

from collections.abc import Sequence

from hopscope.claims import Ledger
from hopscope.llm.answers import Share
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.ledger import told
from hopscope.studies.llm.cells import FILE, Cell
from hopscope.studies.llm.config import PAPER_COUNT, LanguageModelConfig
from hopscope.studies.llm.failures import failure_sections
from hopscope.studies.llm.figures import BY_DEPTH, BY_FORMULATION, figure_names
from hopscope.studies.llm.numbers import Numbers
from hopscope.studies.llm.words import NAMES, SHAPES, kind_words
from hopscope.studies.words import counted
from hopscope.tasks.text import FORMULATIONS, TextConfig, question

SCHEMA_VERSION = 1

_ADDRESS = "http://127.0.0.1:8000/v1"


def write_story(
    run: RunFolder,
    config: LanguageModelConfig,
    cells: Sequence[Cell],
    ledger: Ledger,
) -> None:
    """Write `story.json`."""
    numbers = Numbers(cells)
    sections = [_task_section(config, numbers), _verdict_section(config)]
    if cells:
        sections += [
            _accuracy_section(config, cells, numbers),
            *failure_sections(cells, numbers),
            _limits_section(config),
        ]
    else:
        sections.append(_how_section())
    models = counted(len(config.model), "model") if config.model else "no model was asked"
    asked = f", {counted(config.count, 'question')} of each kind" if config.model else ""
    run.write_json(
        "story.json",
        {
            "schema_version": SCHEMA_VERSION,
            "title": "Retrieval in words: what language models answer",
            "subtitle": models + asked,
            "numbers": numbers.entries,
            "claims": told(ledger),
            "sections": sections,
        },
    )


def _task_section(config: LanguageModelConfig, numbers: Numbers) -> Block:
    example = question(TextConfig(formulation="equations", depth=2, chains=2), 0, config.seed)
    lines = ", ".join(f"“{line}”" for line in example.prompt.split("\n")[:-1])
    rows = []
    for place, name in enumerate(FORMULATIONS, start=1):
        one = question(TextConfig(formulation=name), 0, config.seed)
        depths = config.depths_of(name)
        steps = str(depths[0]) if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"
        choice = len(one.acceptable)
        rows.append([f"F{place} {NAMES[name]}", SHAPES[name], steps, str(choice), f"1 in {choice}"])
    return section(
        "task",
        "The questions",
        text(
            "Each question tells a number of facts, one on a line, and asks for something that only several of them "
            "together say. Four such chains are told side by side, so that the answer cannot be found by looking for "
            "the only thing that fits: the model has to go the whole way. With two chains of two steps, the lines "
            f"{lines} are followed by: “{example.prompt.split(chr(10))[-1]}” The right answer is {example.answer}."
        ),
        table(
            ["formulation", "one chain, in short", "steps D", "acceptable answers", "by guessing"],
            rows,
            "The five formulations. In the first three every step is one look-up; in functions and relatives, where "
            "to look depends on two things that have been found before (conditional retrieval).",
        ),
        text(
            "An answer is acceptable if it is one of the values that the question could have: a number, a name, a "
            "city. White space, quotation marks, a final full stop and upper or lower case do not matter; any other "
            "word makes it unacceptable, because the question asks for the answer alone. The question is then asked "
            "afresh, without the rejected answer, as in the paper, here "
            f"{config.attempts} times at most, and no more after the same unacceptable answer came {config.identical} "
            "times in a row."
        ),
    )


def _verdict_section(config: LanguageModelConfig) -> Block:
    scale = (
        f" This run has {config.count} questions of each kind, fewer than the paper's {PAPER_COUNT}: it can neither "
        "reproduce nor refute. Inconclusive then means “too few to say”, and the words tell what was seen."
        if config.model and config.count < PAPER_COUNT
        else ""
    )
    return section(
        "verdicts",
        "What the claim of the paper comes to",
        text(
            "The threshold was fixed before the run, and nobody types a verdict in: it follows from the counts by one "
            "rule. Reproduced: the 95 % interval of every model and kind of question lies above 90 %. Refuted: one "
            "lies wholly below." + scale
        ),
        {"kind": "verdicts"},
    )


def _how_section() -> Block:
    return section(
        "how",
        "How to ask a model",
        text(
            "No model was named, so nothing was asked, and the claim is not run. Name one or several, as "
            "PROVIDER/MODEL:"
        ),
        table(
            ["where the model is", "command"],
            [
                [
                    "a provider with a key in the environment, such as OPENAI_API_KEY",
                    "hopscope run llm --model openai/gpt-4o",
                ],
                [
                    "any server that speaks OpenAI's protocol (llama.cpp, Ollama, vLLM, transformers serve)",
                    f"LOCAL_API_KEY=none hopscope run llm --model openai-api/local/NAME --base-url {_ADDRESS}",
                ],
                ["a Hugging Face model in a folder, in this process", "hopscope run llm --model hf/FOLDER"],
                ["several, side by side", "hopscope run llm --model openai/gpt-4o openai/gpt-4o-mini"],
            ],
            "The package inspect_ai puts the questions: pip install 'hopscope[llm]'. An interrupted run goes on with "
            "the same command; --preset smoke asks 8 questions of each kind, --preset paper 500.",
        ),
    )


def _accuracy_section(config: LanguageModelConfig, cells: Sequence[Cell], numbers: Numbers) -> Block:
    shown = figure_names(config)
    blocks = [
        text(
            "Bars and points are the paper's measure: among the questions that got an acceptable answer, the share "
            "with the right one. Lines through them are 95 % Wilson intervals, dashed lines what blind guessing among "
            "the acceptable answers reaches."
        ),
        figure(
            BY_FORMULATION,
            "Accuracy by formulation (the paper's Figure 2, left); equations at the largest D that was asked.",
            "Bar chart: accuracy of each model on each formulation, with intervals and the guess line.",
        ),
    ]
    if BY_DEPTH in shown:
        blocks.append(
            figure(
                BY_DEPTH,
                "Equations, by the number of equations on the way to the answer (Figure 2, right).",
                "Line chart: accuracy on equations against D, a line for each model, with the guess line.",
            )
        )
    blocks.append(
        table(
            [
                "model",
                "questions",
                "accuracy, given acceptable",
                "right at the first attempt",
                "first answer acceptable",
                "mean attempts",
                "by guessing",
            ],
            [_row(cell, numbers) for cell in cells],
            f"All kinds of questions, {config.count:,} of each, with 95 % Wilson intervals. Accuracy: of so many "
            "questions that got an acceptable answer in the end. Right at the first attempt and first answer "
            "acceptable: shares of all questions. By guessing: accuracy of a blind guess among the acceptable answers.",
        )
    )
    return section("accuracy", "How often they are right", *blocks)


def _row(cell: Cell, numbers: Numbers) -> list[str]:
    def shown(name: str) -> str:
        share: Share = getattr(cell, name)
        return numbers.share(cell, name, share)

    return [
        numbers.model(cell),
        kind_words(cell),
        f"{shown('accuracy')} of {numbers.count(cell, cell.accuracy.of, 'accuracy.of')}",
        shown("first_accuracy"),
        shown("acceptance"),
        numbers.of(cell, cell.attempts, f"{cell.attempts:.2f}", "attempts"),
        numbers.percent(cell, cell.guess, "guess"),
    ]


def _limits_section(config: LanguageModelConfig) -> Block:
    return section(
        "limits",
        "What these numbers can and cannot say",
        text(
            "The questions are drawn by the seed alone: every model, and every later run with the same seed, gets the "
            "same ones. What answers is whatever the server runs under the model's name today; a provider may change "
            "it. A model that reasons before it answers takes more than one look at the facts, so its accuracy says "
            "little about how many steps fit into one pass.\n\n"
            "Accuracy given an acceptable answer leaves out questions that never got one: read it together with the "
            "columns beside it. Every question with its answers is in the logs of the run, which `inspect view "
            "--log-dir RUN/logs` shows; the counts of this page, and the rows that they count, are in "
            f"{FILE}."
        ),
    )
