"""Figures in a run's folder: a Vega-Lite specification with its data as CSV, drawn as SVG and PNG.

Page and drawings are made from the two text files alone, so a figure can be drawn again by any tool that reads them.
"""

import csv
import io
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from hopscope.errors import HopscopeError, UserError
from hopscope.page.charts import drawn
from hopscope.page.figures import Drawing, Figure, named
from hopscope.page.theme import CATEGORY, chart, colours
from hopscope.runs import Evidence, RunFolder
from hopscope.runs.checkpoint import remove, write_atomic

Spec = dict[str, Any]

_KINDS = ("vl.json", "csv", "svg", "png")

VL_VERSION = "6.4"
"""Vega-Lite release that specifications are written for and drawn with."""


class Shown(NamedTuple):
    """A figure as the page shows it: its specification, with its data as CSV text in it, and the words around it."""

    name: str
    spec: Spec
    caption: str
    alt: str


def write_figures(run: RunFolder, figures: Iterable[Callable[..., Any]], evidence: Evidence) -> None:
    """Draw figures into `figures/NAME.vl.json`, `.csv`, `.svg` and `.png`; those that stand already are left alone.

    Figures that are not given go.  A name has one colour on all.  `UserError`: one cannot be drawn; it is named.
    """
    made = [(figure.name, *_made(figure, evidence)) for figure in named(figures)]
    _coloured([spec for _, spec, *_ in made])
    for at, (name, spec, table, caption, alt) in enumerate(made):
        spec["usermeta"] = {"at": at, "caption": caption, "alt": alt}
        text = json.dumps(spec, ensure_ascii=False, sort_keys=True)
        content = {"vl.json": text.encode(), "csv": table.encode()}
        paths = {kind: run.path / f"figures/{name}.{kind}" for kind in _KINDS}
        stands = all(path.is_file() for path in paths.values())
        if stands and all(paths[kind].read_bytes() == each for kind, each in content.items()):
            continue
        svg, png = _drawn(name, _with_data(spec, table))
        for kind, each in {**content, "svg": svg.encode(), "png": png}.items():
            run.write(f"figures/{name}.{kind}", each)
    there = {path.name.removesuffix(".vl.json") for path in (run.path / "figures").glob("*.vl.json")}
    for name in there - {name for name, *_ in made}:
        for kind in _KINDS:
            remove(run.path / f"figures/{name}.{kind}")


def shown(figure: Figure, evidence: Evidence) -> Shown:
    """A figure as the page draws it, without files."""
    spec, table, caption, alt = _made(figure, evidence)
    _coloured([spec])
    return Shown(figure.name, _with_data(spec, table), caption, alt)


def read_figures(run: RunFolder) -> list[Shown]:
    """The figures of a run's folder, in the order in which the study names them.

    `UserError`: a file is missing or altered, or asks for any data but its own.
    """
    found = []
    for path in sorted((run.path / "figures").glob("*.vl.json")):
        name = path.name.removesuffix(".vl.json")
        spec = json.loads(run.read(f"figures/{path.name}"))
        data = [each["data"] for each in _nodes(spec) if isinstance(each.get("data"), dict)]
        if [each["url"] for each in data if "url" in each] != [f"{name}.csv"]:
            wanted = f"a chart of {name}.csv alone"
            raise UserError(f"{path}: expected {wanted}, found other data; run the command again")
        # What a page may do is said by the page: `usermeta` could open an editor at any address.
        about, table = spec.pop("usermeta", {}), run.read(f"figures/{name}.csv").decode()
        made = Shown(name, _with_data(spec, table), about.get("caption", ""), about.get("alt", name))
        found.append((about.get("at", 0), name, made))
    return [each for *_, each in sorted(found)]


def _made(figure: Figure, evidence: Evidence) -> tuple[Spec, str, str, str]:
    # The specification, which names its data; these as CSV; and the words of its study, or else of its shape.
    try:
        if isinstance(figure.draw, Drawing):
            spec, caption, alt = drawn(figure.draw, evidence)
        else:
            spec, caption, alt = _of_altair(figure, figure(evidence)), "", ""
    except HopscopeError:
        raise
    except Exception as error:  # whatever the study's author wrote: it is named, with its line
        last = traceback.extract_tb(error.__traceback__)[-1]
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        where = f"{Path(last.filename).name}, line {last.lineno}"
        raise UserError(f"figure {figure.name!r}: expected a chart, found {cause} ({where})") from error
    rows, kinds = (spec.get("data") or {}).get("values"), dict[str, str]()
    if not isinstance(rows, list):
        wanted = "expected a chart with its rows as data, such as alt.Chart(frame)"
        raise UserError(f"figure {figure.name!r}: {wanted}, found none at the top of the chart")
    times = {node.get("field") for node in _nodes(spec) if node.get("type") == "temporal"}
    for name in dict.fromkeys(name for row in rows for name in row):
        types = {type(row[name]) for row in rows if row.get(name) is not None} or {str}
        kinds[name] = "boolean" if types == {bool} else "number" if types <= {int, float} else "string"
        kinds[name] = "date" if name in times else kinds[name]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*kinds], lineterminator="\n")
    writer.writeheader()
    for row in rows:  # Vega reads `False` as true
        writer.writerow(
            {name: str(each).lower() if isinstance(each, bool) else each for name, each in row.items()}
        )
    spec["data"] = {"url": f"{figure.name}.csv", "format": {"type": "csv", "parse": kinds}}
    words = ((figure.caption, caption), (figure.alt, alt))
    caption, alt = (str((own(evidence) if callable(own) else own) or other) for own, other in words)
    return spec, text.getvalue(), caption, alt or caption or f"Chart {figure.name}."


def _of_altair(figure: Figure, chart: Any) -> Spec:
    import altair

    if not isinstance(chart, altair.TopLevelMixin):
        wanted = "expected a function that returns an Altair chart"
        raise UserError(f"figure {figure.name!r}: {wanted}, found {type(chart).__name__}")
    with altair.data_transformers.enable("default", max_rows=None):
        spec: Spec = chart.to_dict()
    datasets, name = spec.pop("datasets", {}), (spec.get("data") or {}).get("name")
    spec |= {"data": {"values": datasets.pop(name)}} if name in datasets else {}
    return spec | ({"datasets": datasets} if datasets else {})


def _nodes(node: Any) -> Iterator[Spec]:
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(each)


def _coloured(specs: list[Spec]) -> None:
    # One meaning for each colour, on all charts: scales that name what they tell apart, and no colours, get theirs.
    scales = [
        node["scale"] for spec in specs for part in _nodes(spec) for channel, node in part.items()
        if channel in ("color", "fill", "stroke") and isinstance(node, dict) and node.get("type") == "nominal"
        and isinstance((node.get("scale") or {}).get("domain"), list) and not {"range", "scheme"} & {*node["scale"]}
    ]  # fmt: skip
    known = colours(str(name) for scale in scales for name in scale["domain"])
    for scale in scales:
        wanted, found = [known[str(name)] for name in scale["domain"]], list[str]()
        for at, colour in enumerate(wanted):
            # In one chart none stands for two names, as long as there are colours.
            free = [each for each in CATEGORY if each not in found and each not in wanted[at + 1 :]]
            found.append(free[0] if colour in found and free else colour)
        scale["range"] = found


def _with_data(spec: Mapping[str, Any], table: str) -> Spec:
    config = _merged(chart("config", {"category": [*CATEGORY]}), spec.get("config", {}))
    return {**spec, "data": {"values": table, "format": spec["data"]["format"]}, "config": config}


def _merged(under: Spec, over: Mapping[str, Any]) -> Spec:
    both = [key for key, each in over.items() if isinstance(each, dict) and isinstance(under.get(key), dict)]
    return {**under, **over, **{key: _merged(under[key], over[key]) for key in both}}


def _drawn(name: str, spec: Spec) -> tuple[str, bytes]:
    import vl_convert

    try:
        svg: str = vl_convert.vegalite_to_svg(spec, vl_version=VL_VERSION, allowed_base_urls=[])
        return svg, vl_convert.svg_to_png(svg, scale=2)
    except ValueError as error:
        cause = " ".join(str(error).split())[:200]
        raise UserError(f"figure {name!r}: expected a chart that can be drawn, found {cause}") from error


@cache
def libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; kept beside the bytecode, for bundling takes a second or two."""
    import vl_convert

    path = Path(__file__).with_name("__pycache__") / f"vega-{version('vl-convert-python')}-{VL_VERSION}.js"
    with suppress(OSError):
        digest, _, kept = path.read_bytes().partition(b"\n")
        if digest.decode(errors="replace") == sha256(kept).hexdigest():
            return kept.decode()
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VL_VERSION)
    script = bundle.replace("</script", "<\\/script").encode()
    with suppress(UserError):  # in an installation that cannot be written to it is made each time
        write_atomic(path, sha256(script).hexdigest().encode() + b"\n" + script)
    return script.decode()
