"""Pages are made as those of studies of chains; a server that answers stands among the tests of the language room."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "chains"), str(Path(__file__).parents[2] / "language")]
