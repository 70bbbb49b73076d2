"""How language models fail: which wrong chain was followed, where the way was lost, and what was no answer at all."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.llm.cells import Cell, by_chance
from hopscope.studies.llm.figures import FOLLOWED
from hopscope.studies.llm.numbers import Numbers
from hopscope.studies.llm.survival import Survival, survivals
from hopscope.studies.llm.words import kind_words
from hopscope.studies.numbers import DASH, written
from hopscope.studies.words import counted

_STEPS = {
    "functions": "1: what the function or its argument stands for; 2: the line of the table",
    "relatives": "1: the job; 2: with whom people of that job live; 3: who that is; 4: where that one lives",
}


def failure_sections(cells: Sequence[Cell], numbers: Numbers) -> list[Block]:
    """Everything about wrong and rejected answers; each part only where there is something to show."""
    found = [
        _wrong_section(cells, numbers),
        _hop_section(cells, numbers),
        _rejected_section(cells, numbers),
    ]
    return [each for each in found if each is not None]


def _wrong_section(cells: Sequence[Cell], numbers: Numbers) -> Block | None:
    wrong = [cell for cell in cells if cell.wrong]
    if not wrong:
        return section(
            "wrong",
            "Wrong answers",
            text("No acceptable answer of any model was wrong: there is no way of failing to look at."),
        )
    blocks = [
        text(
            "A wrong answer is itself one of the acceptable ones, and the facts say whose it is: what another of "
            "the chains leads to, or, in relatives, a home to which none leads. If the place of the "
            "lines had nothing to do with it, every other chain would be followed equally often (dashes); a model "
            "that slips to the line above or below stands out at −1 and +1."
        )
    ]
    if any(cell.lost_chain for cell in wrong):
        blocks.append(
            figure(
                FOLLOWED,
                "Wrong answers that are another chain's, by how many lines further down that chain begins than the "
                "asked one: 1 is the next line, −1 the line before. Compared are the lines that hold what the question "
                "names.",
                "Bar charts: share of wrong answers by distance in lines from the asked chain, one for each "
                "formulation.",
            )
        )
        blocks.append(_followed_table(wrong, numbers))
    lost = [cell for cell in wrong if cell.formulation in _STEPS and cell.lost_steps]
    if lost:
        blocks.append(_lost_table(lost, numbers))
    return section("wrong", "Wrong answers: which chain was followed", *blocks)


def _followed_table(cells: Sequence[Cell], numbers: Numbers) -> Block:
    rows = []
    for cell in cells:
        near = [
            numbers.derived(
                (count := sum(found.get(key, 0) for key in ("-1", "1"))),
                str(count),
                f"{field}, −1 and 1 together,",
                cell,
            )
            for field, found in (
                ("from_first_line", cell.from_first_line),
                ("from_answer_line", cell.from_answer_line),
            )
        ]
        rows.append(
            [
                numbers.model(cell),
                kind_words(cell),
                numbers.count(cell, cell.wrong, "wrong"),
                numbers.count(cell, cell.lost_chain, "lost_chain"),
                *near,
                written(2 * by_chance(1, cell.chains), percent=True),
            ]
        )
    return table(
        [
            "model",
            "questions",
            "wrong answers",
            "another chain's",
            "begins one line away",
            "answer stands one line away",
            "one line away by chance",
        ],
        rows,
        "Wrong answers, counted. One line away: among those of another chain, its line stands directly before or "
        "after that of the asked chain; by chance, the share of them for which this holds if every other chain is "
        "followed equally often.",
    )


def _lost_table(cells: Sequence[Cell], numbers: Numbers) -> Block:
    rows = [
        [
            numbers.model(cell),
            kind_words(cell),
            "step " + " or ".join(steps.split(",")),
            f"{numbers.count(cell, count, f'lost_steps[{steps!r}]')} of {numbers.count(cell, cell.wrong, 'wrong')}",
        ]
        for cell in cells
        for steps, count in cell.lost_steps.items()
    ]
    told = "; ".join(f"{name}: {words}" for name, words in _STEPS.items())
    return table(
        ["model", "questions", "lost at", "wrong answers"],
        rows,
        "Steps at which a single wrong reading, all others being right, gives the answer that was given. Relatives "
        "tell most: an answer that is the home of another relative of the same person can come from any step, any "
        f"other home only from the last two. Steps of {told}. In the first three formulations every step can end at "
        "any other chain, so that the answer does not tell.",
    )


def _hop_section(cells: Sequence[Cell], numbers: Numbers) -> Block | None:
    equations = [cell for cell in cells if cell.formulation == "equations"]
    found = [
        each
        for _, group in groupby(equations, key=lambda cell: cell.model)
        for each in survivals(list(group))
    ]
    if not any(each.before for each in found):
        return None
    return section(
        "hops",
        "How much of the skill each hop leaves",
        text(
            "Skill is accuracy above guessing: 0 for a blind guess, 1 if all is right. The table divides the skill at "
            "depth D by that at depth D − 1. If every hop is lost independently of the others, and a lost reading ends "
            "in a blind guess, this is the chance that the added hop is read right. The assumption can fail: questions "
            "of more depth are also longer, so their early hops may be harder too, and then the added hop is blamed "
            "for all of it."
        ),
        table(
            ["model", "D", "skill", "skill of the depth before", "survives the added hop"],
            [_hop_row(each, numbers) for each in found],
            "Equations; 95 % intervals, of the ratio by the method of variance estimates recovery. A value above 100 % "
            "means that the deeper questions went better; a dash, that the skill before cannot be told from none.",
        ),
    )


def _hop_row(each: Survival, numbers: Numbers) -> list[str]:
    cell, before = each.cell, each.before
    return [
        numbers.model(cell),
        str(cell.depth),
        numbers.derived(each.skill, written(each.skill, percent=True), "skill from accuracy and guess", cell),
        DASH
        if before is None or each.skill_before is None
        else numbers.derived(
            each.skill_before,
            written(each.skill_before, percent=True),
            "skill from accuracy and guess",
            before,
        ),
        _ratio(each, numbers),
    ]


def _ratio(each: Survival, numbers: Numbers) -> str:
    cells = (each.cell,) if each.before is None else (each.cell, each.before)
    if each.value is None or each.interval is None:
        return DASH  # a ratio to what may be nothing says nothing
    shown = numbers.derived(each.value, written(each.value, percent=True), "skill by skill before", *cells)
    low, high = (
        numbers.derived(
            end, f"{100 * end:.1f}".replace("-", "−"), f"{name} end of skill by skill before", *cells
        )
        for name, end in zip(("low", "high"), each.interval, strict=True)
    )
    return f"{shown} [{low}, {high}]"


def _rejected_section(cells: Sequence[Cell], numbers: Numbers) -> Block | None:
    rejecting = [cell for cell in cells if cell.rejected]
    if not rejecting:
        return None
    kinds = Counter(kind for cell in rejecting for kind in cell.rejected)
    order = sorted(kinds, key=lambda kind: (not kind.startswith("stopped"), kind))
    rows = [
        [
            numbers.model(cell),
            kind_words(cell),
            *(
                numbers.count(cell, cell.rejected[kind], f"rejected[{kind!r}]")
                if kind in cell.rejected
                else "0"
                for kind in order
            ),
            numbers.count(cell, cell.stuck, "stuck"),
        ]
        for cell in rejecting
    ]
    return section(
        "rejected",
        "Answers that were rejected",
        text(
            "An unacceptable answer can still tell how far the reading went. “Stopped at hop k” is a symbol of the "
            "asked chain, k steps on from the question (hop 0 repeats what the question names); “other chain” is a "
            "symbol on the way of another one; “other” says more than a symbol, or something else. All attempts are "
            "counted, so one question can count several times."
        ),
        table(
            ["model", "questions", *order, "questions given up"],
            rows,
            f"Rejected answers by what they are, of {counted(len(rejecting), 'kind')} of questions that had any. "
            "Questions given up: the same unacceptable answer came again and again.",
        ),
    )
