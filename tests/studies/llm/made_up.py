"""Answers that were never given: to real questions, by a rule, so that every count is known."""

from hopscope.llm.answers import record, rows
from hopscope.llm.question_sets import question_set, remembered
from hopscope.studies.llm.cells import cells_of


def asked(config):
    """Every question of a configuration, by id."""
    return {
        question.id: question
        for kind in config.kinds()
        for question in question_set(
            formulations=(kind.formulation,), depths=[kind.depth], count=config.count, seed=config.seed
        ).questions()
    }


def cells(config, say):
    """Cells of the answers that `say(model, question, number)` gives: a list of texts, the last one final."""
    questions = asked(config)
    made = []
    for model in config.model:
        for number, question in enumerate(questions.values()):
            texts = say(model, question, number)
            attempts = [{"text": t, "acceptable": t if t in question.acceptable else None} for t in texts]
            scored = {"answer": question.answer, "attempts": attempts, "stuck": False}
            made.append(record(question.id, model, 1, remembered(question, config.seed), scored))
    return cells_of(rows(made), questions)
