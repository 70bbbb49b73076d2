"""What tests of studies of chains share stands beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "chains"))
