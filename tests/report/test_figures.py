import json

import altair
import pytest

from hopscope.errors import UserError
from hopscope.report.figures import VL_VERSION, inline_figure, render_figure
from hopscope.report.theme import chart_config, with_theme


def change_spec(run_path, name, change):
    path = run_path / "figures" / f"{name}.vl.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    change(spec)
    path.write_text(json.dumps(spec), encoding="utf-8")


def test_csv_takes_the_place_of_the_url(run_path):
    spec = inline_figure(run_path / "figures", "attention")
    assert spec["data"] == {
        "values": (run_path / "figures" / "attention.csv").read_text(encoding="utf-8"),
        "format": {
            "type": "csv",
            "parse": {"head": "string", "query": "number", "key": "number", "weight": "number"},
        },
    }
    assert '"url"' not in json.dumps(spec)


def test_layers_may_repeat_the_csv_and_bring_inline_data(run_path):
    spec = inline_figure(run_path / "figures", "loss")
    sources = [layer["data"] for layer in spec["layer"] if "data" in layer]
    assert sources
    assert all("url" not in source for source in sources)


def test_a_specification_says_nothing_of_what_the_page_may_do(run_path):
    options = {
        "editorUrl": "javascript:alert(1)",
        "sourceHeader": "<script>alert(2)</script>",
        "actions": True,
    }
    change_spec(run_path, "attention", lambda spec: spec.update(usermeta={"embedOptions": options}))
    told = json.dumps(inline_figure(run_path / "figures", "attention"))
    assert "usermeta" not in told and "alert" not in told


def test_a_link_is_not_shown(run_path, tmp_path):
    path = run_path / "figures" / "attention.csv"
    (tmp_path / "secret.csv").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(tmp_path / "secret.csv")
    with pytest.raises(UserError, match=r"attention\.csv: expected a file of the run, found a link"):
        inline_figure(run_path / "figures", "attention")


def test_altair_writes_for_the_version_that_draws():
    assert altair.SCHEMA_VERSION.startswith(f"v{VL_VERSION}.")


def test_theme_lies_under_the_specification():
    themed = with_theme({"config": {"axis": {"gridColor": "red"}, "font": "serif"}})["config"]
    assert themed["axis"] == {**chart_config()["axis"], "gridColor": "red"}
    assert themed["font"] == "serif"
    assert themed["view"] == chart_config()["view"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda spec: spec["data"].update(url="https://localhost/data.csv"), "https://localhost/data.csv"),
        (lambda spec: spec.pop("data"), "found null"),
        (lambda spec: spec["encoding"].update(x={"data": {"url": "other.csv"}}), "'other.csv'"),
        (lambda spec: spec.update(mark="no such mark"), "cannot be drawn"),
    ],
)
def test_bad_specification_is_one_line(run_path, change, found):
    change_spec(run_path, "attention", change)
    with pytest.raises(UserError) as caught:
        render_figure(run_path / "figures", "attention")
    message = str(caught.value)
    assert "attention.vl.json: expected" in message
    assert found in message
    assert "\n" not in message
    assert not (run_path / "figures" / "attention.svg").exists()


@pytest.mark.parametrize("name", ["loss.csv", "loss.vl.json"])
def test_missing_file_is_one_line(run_path, name):
    (run_path / "figures" / name).unlink()
    with pytest.raises(UserError, match=f"{name}: expected a file, found none: run the study again"):
        inline_figure(run_path / "figures", "loss")


def test_data_that_is_no_text_is_one_line(run_path):
    (run_path / "figures" / "loss.csv").write_bytes(b"step,value\n3,\xff\n")
    with pytest.raises(
        UserError, match=r"loss\.csv: expected UTF-8 text, found invalid start byte at byte 13"
    ):
        inline_figure(run_path / "figures", "loss")


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(config=7),
        lambda spec: spec["data"].update(format="csv"),
        lambda spec: spec.update(layer=[{"data": {"url": "loss.csv", "format": None}}]),
    ],
)
def test_parts_of_another_kind_are_one_line(run_path, change):
    path = run_path / "figures" / "loss.vl.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    change(spec)
    path.write_text(json.dumps(spec), encoding="utf-8")
    with pytest.raises(UserError, match=r"loss\.vl\.json: expected an object as"):
        inline_figure(run_path / "figures", "loss")
