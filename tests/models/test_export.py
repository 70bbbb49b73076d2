import json
import os
import shutil
import tracemalloc
from contextlib import suppress

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.export import CONFIG, WEIGHTS, export_module, load_module
from hopscope.models.member import MemberTransformer

from .samples import OUTPUT, config, inputs, lively

ORIGIN = {"run": "permutation/abc", "member": 1, "step": 500}


@pytest.fixture
def model():
    return lively(config())


@pytest.fixture
def folder(model, tmp_path):
    to = tmp_path / "out" / "member"
    export_module(model.member(1), to, ORIGIN)
    return to


def complaint(folder):
    with pytest.raises(UserError) as caught:
        load_module(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@torch.no_grad()
@pytest.mark.parametrize("text", [False, True], ids=["Path", "str"])
def test_an_exported_member_answers_as_before(model, folder, text):
    loaded = load_module(str(folder) if text else folder)
    given = inputs(model.config)
    assert not loaded.training
    assert torch.equal(loaded(given[1]), model.member(1)(given[1]))
    torch.testing.assert_close(loaded(given[1]), model(given)[1], rtol=1e-5, atol=1e-5)
    assert loaded(given[1, :, :5]).shape == (len(given[1]), 5, OUTPUT)


@pytest.mark.parametrize(
    "changes", [{"norm": "none", "mlp_ratio": 0.0}, {"input_kind": "vectors", "positions": "none"}]
)
@torch.no_grad()
def test_models_of_other_shapes_too(changes, tmp_path):
    model = lively(config(**changes))
    export_module(model.member(0), tmp_path, ORIGIN)
    given = inputs(model.config)
    torch.testing.assert_close(load_module(tmp_path)(given[0]), model(given)[0], rtol=1e-5, atol=1e-5)


def test_the_record_says_where_the_member_comes_from(folder, model):
    record = json.loads((folder / CONFIG).read_text())
    assert record["origin"] == ORIGIN
    assert record["model"] == model.config.model_dump(mode="json")
    assert {path.name for path in folder.iterdir()} == {CONFIG, WEIGHTS}


def test_the_global_random_state_is_left_alone(folder):
    before = torch.get_rng_state()
    load_module(folder)
    assert torch.equal(torch.get_rng_state(), before)


@torch.no_grad()
def test_an_earlier_export_is_replaced(model, folder):
    export_module(model.member(0), folder, ORIGIN)
    given = inputs(model.config)
    assert torch.equal(load_module(folder)(given[0]), model.member(0)(given[0]))


def test_other_files_are_never_touched(model, tmp_path):
    (tmp_path / "thesis.txt").write_text("chapter 1")
    with pytest.raises(UserError, match="expected an empty folder or an earlier export, found other files"):
        export_module(model.member(0), tmp_path, ORIGIN)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / CONFIG).write_text('{"schema_version": 1, "study": "permutation"}')
    with pytest.raises(UserError, match="expected an empty folder or an earlier export, found other files"):
        export_module(model.member(0), tmp_path, ORIGIN)
    assert (tmp_path / CONFIG).read_text() == '{"schema_version": 1, "study": "permutation"}'
    (tmp_path / CONFIG).unlink()
    with pytest.raises(UserError, match="expected a folder for the export, found a file"):
        export_module(model.member(0), tmp_path / "thesis.txt", ORIGIN)
    assert (tmp_path / "thesis.txt").read_text() == "chapter 1"


@pytest.mark.parametrize("where", ["", "absent"])
def test_a_folder_without_an_export(tmp_path, where):
    assert "expected an exported member, found no config.json" in complaint(tmp_path / where)


@pytest.mark.parametrize(
    "record",
    [
        "[]",
        "3",
        "{}",
        '{"format": "other", "schema_version": 1, "model": {}}',
        '{"format": "hopscope-member"}',
    ],
)
def test_a_foreign_record(folder, record):
    (folder / CONFIG).write_text(record)
    assert "expected the record of an exported member, found another; export the member again" in complaint(
        folder
    )


@pytest.mark.parametrize(
    "change",
    [{"schema_version": 2}, {"format": "other"}, {"model": {"layers": 3}}, {"model": None}, {"model": "x"}],
)
def test_a_record_of_another_kind_or_schema(folder, change):
    record = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(record | change))
    assert "expected the record of an exported member, found another" in complaint(folder)


def test_a_record_that_was_cut_short(folder):
    path = folder / CONFIG
    path.write_text(path.read_text()[:53])
    assert "expected whole JSON" in complaint(folder)


def test_weights_that_are_missing(folder):
    (folder / WEIGHTS).unlink()
    assert "expected the weights of an export, found none; export the member again" in complaint(folder)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_weights_that_were_damaged(folder, damage):
    content = bytearray((folder / WEIGHTS).read_bytes())
    if damage == "flipped":
        content[-7] ^= 1
    (folder / WEIGHTS).write_bytes(content if damage == "flipped" else content[: len(content) // 2])
    said = complaint(folder)
    assert f"{folder / WEIGHTS}: expected whole weights, found" in said
    assert said.endswith("; export the member again")


@pytest.mark.parametrize("changes", [{"layers": 2}, {"layers": 4}, {"output_size": 31}])
def test_weights_of_another_model(folder, changes):
    record = json.loads((folder / CONFIG).read_text())
    record["model"] |= changes
    (folder / CONFIG).write_text(json.dumps(record))
    assert "expected weights that fit config.json, found others; export the member again" in complaint(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 10**7},
        {"length": 10**9},
        {"width": 2 * 10**6},
        {"output_size": 10**9},
        {"input_size": 10**9},
    ],
)
def test_a_few_bytes_cannot_ask_for_any_amount_of_memory(folder, changes, monkeypatch):
    record = json.loads((folder / CONFIG).read_text())
    record["model"] |= changes
    (folder / CONFIG).write_text(json.dumps(record))
    monkeypatch.setattr(MemberTransformer, "empty", None)  # nothing is made
    tracemalloc.start()
    try:
        assert "expected weights that fit config.json, found others" in complaint(folder)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("changes", [{"layers": 2**31}, {"width": 10**400}, {"mlp_ratio": 1e308}])
def test_sizes_that_nothing_can_have_are_refused(folder, changes):
    record = json.loads((folder / CONFIG).read_text())
    record["model"] |= changes
    (folder / CONFIG).write_text(json.dumps(record))
    assert "expected the record of an exported member, found another" in complaint(folder)


@torch.no_grad()
def test_an_export_that_is_cut_short_never_takes_one_member_for_another(model, folder, monkeypatch):
    given = inputs(model.config)[0]
    told = []
    for cut in range(1, 5):
        export_module(model.member(0), folder, ORIGIN | {"member": 0})
        with monkeypatch.context() as patched:
            calls = iter(range(1, 9))
            real = os.replace

            def replace(*paths, calls=calls, cut=cut, real=real):
                if next(calls) == cut:
                    raise KeyboardInterrupt
                real(*paths)

            patched.setattr(os, "replace", replace)
            with suppress(KeyboardInterrupt):
                export_module(model.member(1), folder, ORIGIN)
        try:
            loaded = load_module(folder)
        except UserError as error:
            assert "found one that was cut short; export the member again" in str(error)
            told.append(cut)
        else:
            number = json.loads((folder / CONFIG).read_text())["origin"]["member"]
            assert torch.equal(loaded(given), model.member(number)(given))
    assert told == [2, 3]
    # A folder that was new is known for an export too.
    shutil.rmtree(folder)
    with monkeypatch.context() as patched:
        patched.setattr("hopscope.models.export.save_checkpoint", lambda *of: folder / 0)
        with pytest.raises(TypeError):
            export_module(model.member(1), folder, ORIGIN)
    export_module(model.member(1), folder, ORIGIN)
    assert torch.equal(load_module(folder)(given), model.member(1)(given))
