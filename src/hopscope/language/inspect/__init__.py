"""Evaluation through inspect_ai: the tasks, the provider `hopscope/FOLDER`, and resumable evaluations from Python."""

from hopscope.language.inspect.evaluation import evaluate as evaluate
