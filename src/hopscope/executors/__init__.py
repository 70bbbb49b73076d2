"""Execution: a study's units run on this machine, and the run is concluded."""
