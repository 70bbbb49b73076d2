"""The experiments: one package for each study.  This module only knows their names."""

from hopscope.errors import UserError
from hopscope.studies.base import Study

STUDY_NAMES = ("permutation", "depth", "circuits", "emergence", "tiny-lm", "llm")


def find_study(name: str) -> Study:
    """The study of this name.

    Raises:
        UserError: there is none.
    """
    if name not in STUDY_NAMES:
        raise UserError(
            f"study: expected one of {', '.join(STUDY_NAMES)}, found {name!r}; see `hopscope studies`"
        )
    if name == "permutation":
        from hopscope.studies.permutation import PermutationStudy

        return PermutationStudy()
    if name == "depth":
        from hopscope.studies.depth import DepthStudy

        return DepthStudy()
    if name == "circuits":
        from hopscope.studies.circuits import CircuitsStudy

        return CircuitsStudy()
    if name == "emergence":
        from hopscope.studies.emergence import EmergenceStudy

        return EmergenceStudy()
    if name == "tiny-lm":
        from hopscope.studies.tiny_lm import TinyLmStudy

        return TinyLmStudy()
    from hopscope.studies.llm import LanguageModelStudy

    return LanguageModelStudy()
