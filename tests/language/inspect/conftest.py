"""Inspect without two slow habits of which no test needs anything.

It looks through every installed package at the start of each evaluation, and highlights the source of every frame of
a traceback even where nothing is shown; together that is most of the time of a small evaluation.
"""

import functools
from importlib.metadata import packages_distributions

import pytest
from inspect_ai._display.core import results
from inspect_ai._util import package


@pytest.fixture(autouse=True, scope="session")
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "packages_distributions", functools.cache(packages_distributions))
        patch.setattr(results, "rich_traceback", lambda *error: "")
        yield
