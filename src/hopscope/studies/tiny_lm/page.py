"""What the page of small language models shows beside its numbers: a question, a text's mixture, and circuits."""

import math
from collections.abc import Mapping
from typing import Any

from hopscope.circuits.path_history import CircuitsOnPage
from hopscope.story.functions import PageFunctions
from hopscope.studies.tiny_lm.config import TinyLmConfig, shares
from hopscope.studies.tiny_lm.members import gather
from hopscope.tasks.text import TextConfig, questions


def names(page: PageFunctions, config: TinyLmConfig) -> Mapping[str, Any]:
    """Names that the template may use: `example`, `corpus_shares` and `circuits`."""
    asked = TextConfig(formulation="equations", depth=config.depths[-1], chains=config.chains)
    example = next(questions(asked, 1, 0))
    *lines, question = example.prompt.split("\n")
    return {
        "example": {"lines": "; ".join(lines), "question": question, "answer": example.answer},
        "corpus_shares": [] if config.corpus is None else shares(config.corpus, config.depths),
        "circuits": CircuitsOnPage(page, lambda: gather(page.run, config), math.log(config.chains)),
    }
