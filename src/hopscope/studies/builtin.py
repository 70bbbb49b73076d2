"""What the built-in studies have in common: figures and a page that are made of the evidence alone."""

from collections.abc import Mapping
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

from hopscope.runs import RunFolder
from hopscope.studies.figures import Figure, write_figures
from hopscope.tasks.task import Task

if TYPE_CHECKING:
    from hopscope.claims import Ledger
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.page import StudyFacts
    from hopscope.studies.page_functions import PageFunctions
    from hopscope.training.config import UnitPlan

PAGE = "page.md.j2"
"""The template of a study's page, beside its code."""


class BuiltInStudy:
    """A study whose run is described by its options alone: task, model and training of every unit follow from them."""

    name: str
    summary: str

    def plan(self, config: Any) -> "list[UnitPlan]":
        """The units of a configuration."""
        raise NotImplementedError

    def figures(self, config: Any) -> tuple[Figure, ...]:
        """The figures that there is something to draw of."""
        raise NotImplementedError

    def page_names(self, page: "PageFunctions", config: Any) -> Mapping[str, Any]:
        """What the study's own code adds to the names that its template may use."""
        return {}

    def member_name(self, config: Any, member: int, seed: int, configuration: str) -> str:
        """What a page calls a member; empty for its configuration and seed."""
        return ""

    def template(self, name: str = PAGE) -> str:
        """The text of the page's template, or of a part of it that stands beside it."""
        return resources.files(type(self).__module__).joinpath(name).read_text(encoding="utf-8")

    def facts(self, config: Any) -> "StudyFacts":
        """What a page says of the study itself."""
        from hopscope.studies.page import StudyFacts

        # The tasks of built-in studies are built in, too: none is known by a reference alone.
        floors = {plan.label: cast(Task, plan.task).floors() for plan in self.plan(config)}
        return StudyFacts(
            name=self.name,
            question=self.summary,
            options=config.model_dump(mode="json"),
            seeds=getattr(config, "seeds", 0),  # a study without units has none
            floors=lambda label: floors.get(label, {}),
            template=f"{self.name}/{PAGE}",
            member_name=partial(self.member_name, config),
        )

    def present(self, run: RunFolder, config: Any, evidence: "Evidence", ledger: "Ledger") -> None:
        """Write figures and story."""
        write_figures(run, self.figures(config), evidence, self.facts(config).floors)
        run.write_json("story.json", self.story(run, config, evidence, ledger))

    def story(self, run: RunFolder, config: Any, evidence: "Evidence", ledger: "Ledger") -> dict[str, Any]:
        """What the page of a run says, as `story.json` holds it."""
        from hopscope.studies.page import render_page

        def own(page: "PageFunctions") -> Mapping[str, Any]:
            return {"options": config, **self.page_names(page, config)}

        facts, figures = self.facts(config), self.figures(config)
        return render_page(self.template(), facts, evidence, ledger, figures, run, own, parts=self.template)
