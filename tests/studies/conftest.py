"""The processes and finished runs of `tests/executors`, under the same names."""

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[1] / "executors" / "conftest.py"
_NAME = "hopscope_tests_executors"
if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, _PATH)
    assert _spec is not None and _spec.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])

home = sys.modules[_NAME].home
processes = sys.modules[_NAME].processes
processes_module = sys.modules[_NAME].processes_module
small_run = sys.modules[_NAME].small_run
whole_run = sys.modules[_NAME].whole_run
depth_run = sys.modules[_NAME].depth_run
