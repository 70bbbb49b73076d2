"""Trackers: what a run records, sent to TensorBoard, Weights & Biases or trackio.

Training never waits for a tracker and cannot fail by one.  Its own process reads what the run has recorded
(`follower.py`), gives it to a sink (`sinks.py`) and ends when the run does (`sender.py`); the command that runs the
study only starts it and says in one line if it failed (`watching.py`).
"""

from hopscope.executors.tracking.sinks import TRACKERS as TRACKERS
from hopscope.executors.tracking.sinks import check_trackers as check_trackers
from hopscope.executors.tracking.watching import followed as followed
from hopscope.executors.tracking.watching import send as send
