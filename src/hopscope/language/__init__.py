"""Language models: the questions that they are asked, what they answer, which of their heads retrieve, hops of texts.

`evaluate` asks models through Inspect and `answers` says what came of it; `local` opens models of this machine, whose
heads `heads` scores; `hops` counts.  What needs an extra is imported where it is used.
"""

from hopscope.language.questions import FORMULATIONS as FORMULATIONS
from hopscope.language.questions import Question as Question
from hopscope.language.questions import Questions as Questions
from hopscope.language.questions import kinds as kinds
from hopscope.language.text import Equations as Equations
