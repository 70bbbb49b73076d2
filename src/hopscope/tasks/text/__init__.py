"""Retrieval asked in words: the paper's five formulations (section 4 and Appendix A), without torch.

A question is a prompt, its answer and the acceptable answers.  It also carries its structure: which chains are
interleaved, what each line says about which chain, and where in the prompt every symbol stands, so that a wrong answer
or an attention head can be named for what it did.
"""

from hopscope.tasks.text.config import FORMULATIONS as FORMULATIONS
from hopscope.tasks.text.config import TextConfig as TextConfig
from hopscope.tasks.text.generate import question as question
from hopscope.tasks.text.generate import questions as questions
from hopscope.tasks.text.generate import records as records
from hopscope.tasks.text.generate import space as space
from hopscope.tasks.text.values import Fact as Fact
from hopscope.tasks.text.values import Mention as Mention
from hopscope.tasks.text.values import Question as Question
from hopscope.tasks.text.values import Structure as Structure
