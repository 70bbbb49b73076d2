"""Language models: the questions that they are asked, and what is trained to answer them."""

from hopscope_next.language.text import Equations as Equations
