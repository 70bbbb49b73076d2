import os
import subprocess
import sys
from pathlib import Path

import hopscope.errors

SOURCE = Path(hopscope.errors.__file__).parents[1]
CODE = """
import torch
from hopscope.training import threads
before = threads.flushes_subnormals()
print(before, threads.prepare(2), torch.get_num_threads())
"""


def test_every_thread_flushes_subnormals():
    """In a process of its own: the flag must be set before torch starts its threads."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    fresh = [sys.executable, "-c", CODE.replace("before = threads.flushes_subnormals()", "before = None")]
    done = subprocess.run(fresh, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "True", "2"]
