"""The script of the charts is bundled once, and a kept one is used only if it is whole."""

import pytest
import vl_convert

from hopscope.report import libraries as module
from hopscope.report.figures import VL_VERSION


@pytest.fixture
def bundled(monkeypatch, tmp_path):
    """How often the library was asked; what it says ends its script element."""
    asked = []

    def bundle(snippet, vl_version):
        asked.append((snippet, vl_version))
        return "é\r\n'</script>'"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    return asked


def made_anew():
    """As another process would."""
    module.libraries.cache_clear()
    try:
        return module.libraries()
    finally:
        module.libraries.cache_clear()


def test_made_once_for_all_processes(bundled):
    first = made_anew()
    assert first == "é\r\n'<\\/script>'"
    assert made_anew() == first
    assert bundled == [("window.vegaEmbed = vegaEmbed;", VL_VERSION)]


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: b"", lambda content: b"\xff\n"]
)
def test_a_damaged_one_is_made_anew(bundled, damage):
    first = made_anew()
    (path,) = module.KEPT.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert made_anew() == first
    assert len(bundled) == 2
    assert path.read_bytes() == whole


def test_another_version_is_another_script(bundled, monkeypatch):
    made_anew()
    monkeypatch.setattr(module, "version", {"vl-convert-python": "0.0.0"}.get)
    made_anew()
    assert len(bundled) == 2


def test_where_nothing_can_be_kept_it_is_made_each_time(bundled):
    module.KEPT.write_text("a file in place of the folder")
    assert made_anew() == made_anew()
    assert len(bundled) == 2
