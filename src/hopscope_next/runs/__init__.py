"""The record on disk: files that are whole or absent (free of torch)."""

from hopscope_next.runs.checkpoint import CheckpointDamaged as CheckpointDamaged
from hopscope_next.runs.checkpoint import load_checkpoint as load_checkpoint
from hopscope_next.runs.checkpoint import save_checkpoint as save_checkpoint
from hopscope_next.runs.checkpoint import write_atomic as write_atomic
