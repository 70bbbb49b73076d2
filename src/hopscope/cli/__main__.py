"""`python -m hopscope.cli`."""

import sys

from hopscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
