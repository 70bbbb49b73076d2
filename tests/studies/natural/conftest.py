"""Pages are made as those of studies of chains."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "chains"))
