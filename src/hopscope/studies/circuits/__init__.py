"""The study of circuits (paper, section 8): which circuits seeds learn, read and proven member by member."""

from hopscope.runs import RunFolder
from hopscope.studies.chains.study import ChainsStudy
from hopscope.studies.circuits.config import COSTS, FIGURE_NAMES, PRESETS, CircuitsConfig


class CircuitsStudy(ChainsStudy):
    """See `hopscope.studies.base.Study`."""

    name = "circuits"
    summary = "models of many layers follow a chain: which heads do it, how, and whether seeds agree"
    presets = PRESETS
    costs = COSTS
    config_type = CircuitsConfig

    def figures(self, config: CircuitsConfig) -> tuple[str, ...]:
        """Names of the figures."""
        return FIGURE_NAMES

    def conclude(self, run: RunFolder) -> None:
        """Claims, figures and story."""
        from hopscope.studies.chains.evidence import gather
        from hopscope.studies.chains.figures import write_figures
        from hopscope.studies.circuits.figures import FIGURES
        from hopscope.studies.circuits.ledger import judge
        from hopscope.studies.circuits.story import write_story

        config = CircuitsConfig.model_validate(run.config)
        members = gather(run, config)
        judged = judge(members, config)
        run.write_json("claims.json", [claim.to_json() for claim, _ in judged])
        write_figures(run, FIGURES, config, members)
        write_story(run, config, members, judged)
