"""Inspect without two slow habits of which no test needs anything.

It looks through every installed package at the start of each evaluation, and highlights the source of every frame of a
traceback even where nothing is shown.
"""

import functools
from importlib.metadata import packages_distributions
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True, scope="session")
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("inspect_ai"):
            from inspect_ai._display.core import results
            from inspect_ai._util import package

            patch.setattr(package, "packages_distributions", functools.cache(packages_distributions))
            patch.setattr(results, "rich_traceback", lambda *error: "")
        yield
