"""The record on disk: files that are whole or absent (free of torch)."""

from hopscope_next.runs.checkpoint import CheckpointDamaged as CheckpointDamaged
from hopscope_next.runs.checkpoint import load_checkpoint as load_checkpoint
from hopscope_next.runs.checkpoint import save_checkpoint as save_checkpoint
from hopscope_next.runs.checkpoint import write_atomic as write_atomic
from hopscope_next.runs.evidence import Evidence as Evidence
from hopscope_next.runs.folder import RunFolder as RunFolder
from hopscope_next.runs.folder import runs_in as runs_in
from hopscope_next.runs.unit import Member as Member
from hopscope_next.runs.unit import Row as Row
from hopscope_next.runs.unit import UnitFolder as UnitFolder
