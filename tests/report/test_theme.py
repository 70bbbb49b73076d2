"""Colours of charts stay apart for eyes that see fewer of them, in the light and in the dark, and on grey paper."""

import itertools
import math
import re

import pytest

from hopscope.report.theme import (
    CATEGORY,
    CATEGORY_DARK,
    DARK,
    LIGHT,
    in_greyscale,
    style_sheet,
    themed_svg,
    variables,
)

# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
SEEN_AS = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
CROWDED = 6
"""Lines that must be told apart by colour alone: more of them have a panel, a row or a label of their own."""


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(colour, matrix):
    rgb = linear(colour)
    return [min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in matrix]


def lab(rgb):
    """CIE L*a*b* of linear RGB under D65."""
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = (sum(a * b for a, b in zip(row, rgb, strict=True)) / white
               for row, white in zip(rows, (0.9505, 1.0, 1.089), strict=True))  # fmt: skip
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(one, other):
    light = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))]
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("colours", [CATEGORY, CATEGORY_DARK], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", SEEN_AS)
def test_series_stay_apart(colours, eyes):
    points = [lab(seen(colour, SEEN_AS[eyes])) for colour in colours[:CROWDED]]
    nearest = min(math.dist(*pair) for pair in itertools.combinations(points, 2))
    assert nearest >= 9, nearest


@pytest.mark.parametrize(
    ("colours", "ground"), [(LIGHT, LIGHT["paper"]), (DARK, DARK["paper"]), (DARK, "#14181d")]
)
def test_words_and_lines_carry_on_their_ground(colours, ground):
    for role in ("ink", "quiet"):
        assert contrast(colours[role], ground) >= 4.5, role
    series = [colour for role, colour in colours.items() if role.startswith("series")]
    # Okabe-Ito's sky blue and orange are pale on white: lines in them come only behind four others.
    assert all(contrast(colour, ground) >= 2.1 for colour in series)
    assert all(contrast(colour, ground) >= 2.8 for colour in series[:4])


@pytest.mark.parametrize("colours", [CATEGORY, CATEGORY_DARK], ids=["light", "dark"])
def test_in_greyscale_lines_stay_apart_by_their_dash_or_their_lightness(colours):
    sheet = style_sheet()
    assert (
        "monochrome" not in sheet and "print" not in sheet
    )  # a screen that shows colours need not be seen in them
    dashes = dict(re.findall(r"-series-(\d)\)\"\].* \{ stroke-dasharray: ([\d ]+);", sheet))
    assert [int(place) for place in dashes] == list(range(2, CROWDED + 2))  # the first is drawn through
    widths = dict(re.findall(r"-series-(\d)\)\"\].* \{ stroke-width: ([\d.]+);", sheet))
    light = [lab(linear(colour))[0] for colour in colours]
    for one, other in itertools.combinations(range(1, CROWDED + 2), 2):
        apart = abs(light[one - 1] - light[other - 1]) >= 25
        assert apart or dashes.get(str(one)) != dashes.get(str(other))
        assert apart or widths[str(one)] != widths[str(other)]


def test_every_colour_of_the_theme_has_a_variable_in_both_themes():
    light, dark = (set(re.findall(r"(--chart-[\w-]+):", part)) for part in style_sheet().split("@media")[:2])
    assert light == dark
    assert {name.removeprefix("var(").removesuffix(")") for name in variables().values()} <= light


def test_a_drawing_of_ours_gets_the_variables_of_its_colours_and_nothing_else_changes():
    drawing = '<path stroke="#0072b2" fill="none"/><rect fill="#ffffff"/><text>fill=&#34;#ffffff&#34; #0072b2</text>'
    expected = drawing.replace('stroke="#0072b2"', 'stroke="var(--chart-series-1)"').replace(
        'fill="#ffffff"', 'fill="var(--chart-paper)"'
    )
    assert themed_svg(drawing) == expected


def line(colour, extra="", course="M0,0L9,9"):
    return (
        f'<g class="mark-line role-mark marks" role="x"><path aria-label="a &gt; b" d="{course}" stroke="{colour}" '
        f'stroke-width="2"{extra}/></g>'
    )


def test_lines_of_a_file_differ_in_dash_as_on_the_page():
    drawn = [in_greyscale(line(colour)) for colour in CATEGORY[:7]]
    dashes = [re.findall('stroke-dasharray="([^"]*)"', each) for each in drawn]
    assert dashes[0] == [] and len({tuple(each) for each in dashes}) == 7
    sheet = style_sheet()
    assert all(f"stroke-dasharray: {dash};" in sheet for each in dashes[1:] for dash in each)


def test_where_dashes_tell_something_else_lines_differ_in_width():
    drawn = in_greyscale("".join(line(colour, ' stroke-dasharray="4 4"') for colour in CATEGORY[:7]))
    assert len(set(re.findall('stroke-width="([^"]*)"', drawn))) == 7
    assert set(re.findall('stroke-dasharray="([^"]*)"', drawn)) == {"4 4"}


@pytest.mark.parametrize("kept", [line("#123456"), line(CATEGORY[1], course="M0,0A2,2,0,1,1,3,3Z"),
                                  line(CATEGORY[1]).replace("mark-line", "mark-rule"), "<svg/>"])  # fmt: skip
def test_other_colours_shapes_and_marks_stay_as_they_are(kept):
    assert in_greyscale(kept) == kept
