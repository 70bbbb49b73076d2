"""The record: run folders, hashes, metric parts, checkpoints, events (free of torch)."""

from hopscope.runs.checkpoints import CheckpointDamaged as CheckpointDamaged
from hopscope.runs.checkpoints import load_checkpoint as load_checkpoint
from hopscope.runs.checkpoints import save_checkpoint as save_checkpoint
from hopscope.runs.checkpoints import strip_checkpoint as strip_checkpoint
from hopscope.runs.files import canonical_json as canonical_json
from hopscope.runs.files import read_json as read_json
from hopscope.runs.files import write_atomic as write_atomic
from hopscope.runs.files import write_json as write_json
from hopscope.runs.hashing import RESULTS_VERSION as RESULTS_VERSION
from hopscope.runs.hashing import SCHEMA_VERSION as SCHEMA_VERSION
from hopscope.runs.hashing import config_hash as config_hash
from hopscope.runs.hashing import content_hash as content_hash
from hopscope.runs.hashing import source_hash as source_hash
from hopscope.runs.locate import find_run as find_run
from hopscope.runs.locate import find_runs as find_runs
from hopscope.runs.members import MemberRecord as MemberRecord
from hopscope.runs.metrics import METRICS_SCHEMA as METRICS_SCHEMA
from hopscope.runs.metrics import compact as compact
from hopscope.runs.metrics import drop_parts_after as drop_parts_after
from hopscope.runs.metrics import read_metrics as read_metrics
from hopscope.runs.metrics import write_part as write_part
from hopscope.runs.store import RunFolder as RunFolder
from hopscope.runs.units import CheckpointWarning as CheckpointWarning
from hopscope.runs.units import UnitFolder as UnitFolder
