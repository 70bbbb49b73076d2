"""Language models: the questions as Inspect tasks, a provider for models in a folder, and what answers say."""

from hopscope.llm.evaluation import Evaluation as Evaluation
from hopscope.llm.evaluation import evaluate as evaluate
