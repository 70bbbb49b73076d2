"""Hopscope's second house, built beside the first from the ground up; see docs/architecture.md."""
