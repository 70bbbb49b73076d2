"""What is asked of which language models."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from hopscope.errors import UserError
from hopscope.language import FORMULATIONS, Questions, kinds
from hopscope.language.questions import Formulation, Protocol, Wording
from hopscope.study.study import Configuration
from hopscope.tasks.task import expect

PAPER_COUNT, PAPER_DEPTHS = 500, (1, 2, 3, 4, 5)
"""Questions of each kind in the paper (section 4), and depths of equations that its claim is about."""

_LONGEST = 24  # characters of a name that fit into a legend


class Options(Wording, Protocol):
    """Which models are asked what.

    Attributes:
        model: models, each as Inspect names it: openai/gpt-4o, openai-api/NAME/MODEL for any server that speaks
            OpenAI's protocol, or one of this machine: hf/FOLDER, hf/FILE.gguf, hf/NAME. Several may be given.
        formulations: which of the five formulations to ask.
        depths: retrieval steps of the equations.
    """

    model: tuple[str, ...] = ()
    formulations: tuple[Formulation, ...] = FORMULATIONS
    depths: tuple[Annotated[int, Field(ge=1)], ...] = PAPER_DEPTHS

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        for name in ("model", "formulations", "depths"):
            given = getattr(self, name)
            found = f"{' '.join(map(str, given))}; leave one out"
            expect(len({*given}) == len(given), name, "each once", found)
        expect(self.formulations != (), "formulations", f"some of {', '.join(FORMULATIONS)}", "none")
        asked = self.depths != () or "equations" not in self.formulations
        ascending = asked and [*self.depths] == sorted(self.depths)
        expect(ascending, "depths", "ascending numbers of steps", [*self.depths])
        for model in self.model:
            named, local = "/" in model.strip("/"), model.startswith("hf/")
            expect(named, "model", "PROVIDER/MODEL, such as openai/gpt-4o", f"{model!r}; name its provider")
            wanted, found = "models of this machine (hf/…)", f"{model!r}, whose server decides; leave it out"
            expect(local or self.precision == "float32", "precision", wanted, found)
        return self

    def kinds(self) -> list[Questions]:
        """The questions of every kind, in the paper's order."""
        how = {name: getattr(self, name) for name in Wording.model_fields}
        asked = [name for name in FORMULATIONS if name in self.formulations]
        return [kind for name in asked for kind in kinds((name,), self.depths * (name == "equations"), **how)]

    @property
    def names(self) -> dict[str, str]:
        """Models as evidence names them (an absolute folder with one slash) → names that fit into a legend."""
        return short_names([name.replace("//", "/") for name in self.model])

    def departures(self) -> list[str]:
        """How this departs from the paper's protocol, in words; none is at scale."""
        wanted, own = [[each.kind for each in one.kinds()] for one in (Options(), self)]
        absent = len({*wanted} - {*own})
        words = {
            f"{self.count} of {PAPER_COUNT} questions of each kind": self.count < PAPER_COUNT,
            f"{absent} of {len(wanted)} kinds of questions not asked": absent > 0,
            "a choice among the acceptable answers instead of an answer": self.measure == "choice",
            f"{self.few_shot} solved examples": self.few_shot > 0,
            f"{self.filler} filler tokens": self.filler > 0,
            f"each problem told {self.repeats} times": self.repeats > 1,
        }
        return [each for each, departs in words.items() if departs]


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Models → names that fit into a legend: a long path loses its middle, if what is left is still different."""
    parts = {model: model.rstrip("/").split("/") for model in models}
    short = {
        model: model if len(model) <= _LONGEST else f"{each[0]}/…/{each[-1]}" for model, each in parts.items()
    }
    return short if len({*short.values()}) == len(short) else {model: model for model in models}


def check(options: Options) -> list[Configuration]:
    """Nothing is trained; refuse to begin without a model, or without Inspect.

    Raises:
        UserError: says how to name a model, or how to install what is missing.
    """
    if not options.model:
        advice = "name it as Inspect does, such as --model openai/gpt-4o or --model hf/FOLDER"
        raise UserError(f"model: expected at least one to ask, found none; {advice}")
    import hopscope.language.evaluate  # noqa: F401

    return []
