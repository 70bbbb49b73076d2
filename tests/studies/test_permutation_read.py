"""Which models of a permutation run are read, and that reading them changes no run's name."""

from hopscope.circuits.config import followed_names
from hopscope.report.circuit_player import target_cells
from hopscope.report.circuits import CircuitPath, Token
from hopscope.runs.hashing import config_hash
from hopscope.studies.permutation.circuits import READER, files, read_job
from hopscope.studies.permutation.config import PRESETS, PermutationStudyConfig

CONFIG = PermutationStudyConfig(seeds=5, circuits=True, sweeps=("ratio",), sweep_seeds=3, members_per_unit=2)


def test_the_first_seed_of_each_configuration_that_is_measured_in_full_is_read():
    read = {job.label: read_job(CONFIG, job) for job in CONFIG.jobs() if read_job(CONFIG, job) is not None}
    assert set(read) == {"d16/1 plain", "d32/2 repeats"}
    assert [[member.seed for member in job.members] for job in read.values()] == [[0], [0]]
    for job in CONFIG.jobs():
        found = files(CONFIG, job)
        first = job.label in read and job.members[0].seed == 0
        assert found == (followed_names([job.members[0].member], READER) if first else {})


def test_nothing_is_read_unless_it_is_asked_for():
    for preset in ("smoke", "paper", "readings"):
        assert not any(files(PRESETS[preset], job) for job in PRESETS[preset].jobs())
    assert sum(bool(files(PRESETS["laptop"], job)) for job in PRESETS["laptop"].jobs()) == 2


def test_runs_keep_their_names():
    assert "circuits" not in PRESETS["paper"].model_dump(mode="json")
    committed = {"smoke": "dcb90ab48dfb", "readings": "c6b852afc391"}
    for preset, name in committed.items():
        assert config_hash("permutation", PRESETS[preset].model_dump(mode="json")) == name


def test_a_read_of_all_y_names_every_y_before_the_row():
    tokens = [
        Token(role=role, chain=-1, label="1") for role in ("x 1", "y 1", "x 2", "y 2", "x 3", "y 3", "x 4")
    ]
    removed = {"rules": 1.0, "clean": 1.0, "recomputed": 1.0}
    path = CircuitPath(
        layer=0, head=0, query_role="x 3", rule="over_role", target_role="all y", mean_attention=1.0,
        loss_if_removed=removed, attention=[1.0],
    )  # fmt: skip
    assert target_cells(tokens, path) == [(4, 1), (4, 3)]
