"""Answers that were never given: to real questions, by a rule, so that every count is known."""

from hopscope.claims import judge
from hopscope.language.questions.answers import SCHEMA_VERSION, Answers, row, tallies
from hopscope.language.questions.sets import question_set, remembered
from hopscope.runs.evidence import Evidence
from hopscope.studies.llm import measurements
from hopscope.studies.llm.claims import claims


def asked(config):
    """Every question of a configuration, by id."""
    return {
        question.id: question
        for kind in config.kinds()
        for question in question_set(
            formulations=(kind.formulation,), depths=[kind.depth], count=config.count, seed=config.seed
        ).questions()
    }


def answered(config, say):
    """Answers on record, of texts that `say(model, question, number)` gives: a list, the last one final."""
    questions = asked(config)
    made = []
    for model in config.model:
        for number, question in enumerate(questions.values()):
            texts = say(model, question, number)
            attempts = [{"text": t, "acceptable": t if t in question.acceptable else None} for t in texts]
            scored = {"answer": question.answer, "attempts": attempts, "stuck": False}
            made.append(row(question.id, model, 1, remembered(question, config.seed), scored))
    return Answers(schema_version=SCHEMA_VERSION, cells=tuple(tallies(made, questions)), rows=tuple(made))


def cells(config, say):
    """Cells of such answers."""
    return list(answered(config, say).cells)


def evidence_of(answers, config):
    """The evidence table of a run with these answers."""
    return Evidence.of([], measurements.rows(answers), config.model_dump(mode="json"))


def judged(answers, config):
    """R10 on these answers."""
    (claim,) = claims(config)
    return judge(claim, evidence_of(answers, config))
