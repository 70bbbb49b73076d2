"""Tests of language models: what needs Inspect or transformers is collected only in a process of its own."""

import os

collect_ignore = [] if os.environ.get("HOPSCOPE_INSPECTED") == "1" else ["inspect"]
