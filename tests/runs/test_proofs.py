"""What was drawn proves itself: every byte, what it was drawn from, and the file beside it."""

import pytest

from hopscope.runs.proofs import proven, state

TEXT = "<svg>2, 3 and 5</svg>"
SOURCE = "c0ffee"
PNG = b"\x89PNG 7"


@pytest.fixture
def drawing(tmp_path):
    """An SVG and the PNG that was made with it."""
    svg, png = tmp_path / "loss.svg", tmp_path / "loss.png"
    svg.write_text(proven(TEXT, SOURCE, PNG))
    png.write_bytes(PNG)
    return svg, png


def test_what_was_made_stands(drawing):
    svg, png = drawing
    assert svg.read_text().startswith(TEXT)
    assert state(svg, SOURCE, png) == state(svg, None, png) == state(svg, SOURCE) == "stands"


def test_a_page_has_neither_source_nor_picture(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(proven("<p>11</p>\n"))
    assert state(path) == "stands"
    path.write_text(path.read_text().replace("11", "13"))
    assert state(path) == "altered"


def test_of_another_source_it_is_stale(drawing):
    assert state(drawing[0], "beef", drawing[1]) == "stale"


def test_no_bit_can_be_turned(drawing):
    for path in drawing:
        whole = path.read_bytes()
        for place in range(8 * len(whole)):
            content = bytearray(whole)
            content[place // 8] ^= 1 << place % 8
            path.write_bytes(content)
            assert state(drawing[0], SOURCE, drawing[1]) != "stands", (path, place)
        path.write_bytes(whole)
    assert state(drawing[0], SOURCE, drawing[1]) == "stands"


@pytest.mark.parametrize(
    "content", [b"", b"\n", TEXT.encode(), b"<svg/>\n<!-- sha256  -->\n", b"\xff\n<!-- -->\n"]
)
def test_without_a_proof_nothing_is_proven(drawing, content):
    drawing[0].write_bytes(content)
    assert state(drawing[0], SOURCE, drawing[1]) == "unproven"


def test_what_is_gone_is_not_proven(drawing):
    svg, png = drawing
    png.unlink()
    assert state(svg, SOURCE, png) == "unproven"
    svg.unlink()
    assert state(svg, SOURCE) == "unproven"


def test_what_stands_behind_the_proof_spoils_it(drawing):
    svg, png = drawing
    with svg.open("a") as file:
        file.write("<text>17</text>")
    assert state(svg, SOURCE, png) == "unproven"
    # With a proof of its own for what was added, the whole text is proven, not the first part.
    svg.write_text(proven(TEXT, SOURCE, PNG) + proven("<text>17</text>", SOURCE, PNG))
    assert state(svg, SOURCE, png) == "altered"
