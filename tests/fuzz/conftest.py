"""The fuzzer's modules, which are no package: `soak.py` is a command too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
