"""Run the command line: `python -m hopscope`."""

import sys

from hopscope.cli.main import main

sys.exit(main())
