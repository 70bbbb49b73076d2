"""The record on disk: files that are whole or absent (free of torch)."""

from hopscope.runs.checkpoint import CheckpointDamaged as CheckpointDamaged
from hopscope.runs.checkpoint import load_checkpoint as load_checkpoint
from hopscope.runs.checkpoint import save_checkpoint as save_checkpoint
from hopscope.runs.checkpoint import write_atomic as write_atomic
from hopscope.runs.evidence import Evidence as Evidence
from hopscope.runs.folder import RunFolder as RunFolder
from hopscope.runs.folder import runs_in as runs_in
from hopscope.runs.unit import Member as Member
from hopscope.runs.unit import Row as Row
from hopscope.runs.unit import UnitFolder as UnitFolder
