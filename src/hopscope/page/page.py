"""The page of a run: one HTML file that needs no network, and is the same for the same folder.

Everything is escaped; the content policy is the second lock.  Only the scripts that a page was built with may run, each
known by its SHA-256; nothing may become a script later, and nothing may be asked of a network.
"""

import json
import os
import shlex
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from hopscope.claims.judge import joined
from hopscope.claims.verdict import Ledger, counted
from hopscope.errors import HopscopeError, UserError
from hopscope.page import explorer, figures
from hopscope.page.facts import CONFIGURATION, Facts
from hopscope.page.files import Shown, libraries, read_figures, shown, write_figures
from hopscope.page.story import Story
from hopscope.page.template import Held, fill, tie
from hopscope.page.theme import packaged, style_sheet, variables
from hopscope.page.verdicts import SIGNS, Row, row_of, state_of, tally
from hopscope.runs import Evidence, RunFolder
from hopscope.study.jobs import job_of, task_of
from hopscope.study.load import Loaded, template_text

ABOUT = "page.json"
"""What the page needs of a study besides the run: its template, the task's words, and the floors."""

MOST_OUTCOMES, MOST_CELLS, MOST_LINES = 3, 30, 40
"""Claims on the first screen; cells of a table that is not folded; lines in the chart of several runs."""

_REST = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
_SCRIPTS = ("page.js", "charts.js", "matrix.js", "forward.js", "picture.js", "explorer.js", "circuit.js")
_EXPLORER, _PLAYER = ("matrix.js", "forward.js", "explorer.js"), ("matrix.js", "picture.js", "circuit.js")
_WAYS = {"Try the model": 'class="explorer', "Play its circuit": 'class="circuits'}

View = dict[str, Any]
"""One run as the templates see it: `anchor` begins its ids, `rows` are its claims, `ways` lead to what can be tried."""


def page(*runs: RunFolder) -> str:
    """The page of a run, as one HTML file; of an unfinished one, what there is and what is missing.

    Of several runs: claims side by side, losses in one chart, what differs, and the runs themselves.
    `UserError`: a file is missing or damaged, or the study's template asks for what is not there.
    """
    if not runs:
        raise UserError("report: expected at least one run, found none; name the folder of a run")
    views = [_view(run, f"run-{at}") for at, run in enumerate(runs, start=1)]
    _name(views)
    several = len(views) > 1
    title = f"Hopscope: {len(views)} runs" if several else views[0]["title"]
    chart = _compared_chart(views) if several else None
    specs = {name: spec for view in views for name, spec in view["specs"].items()}
    specs |= {"compared-spec-loss": chart.spec} if chart else {}
    wanted = {name for view in views for name in view["scripts"]} | ({"charts.js"} if specs else set())
    scripts = [*([libraries()] if specs else [])]
    scripts += [packaged(name) or "" for name in _SCRIPTS if name in {"page.js", *wanted}]
    command = shlex.join(["hopscope", "report", *(f"ROOT/{view['study']}/{view['hash']}" for view in views)])
    together = joined([row.verdict for row in view["rows"]] for view in views) if several else {}
    named = {"views": views, "compared": chart, "specs": specs, "colours": variables() if wanted else {}}
    return _page("page.html", title, scripts, command=command, together=together, **named)


def write_page(run: RunFolder, loaded: Loaded) -> None:
    """Write what a study says of a finished run: its figures, what its page needs, and `report.html`.

    `UserError`: a figure or the template cannot be made; the message names it.
    """
    with loaded.naming():
        about = _about(run, loaded)
        run.write(ABOUT, json.dumps(about, ensure_ascii=False, sort_keys=True))
        write_figures(run, loaded.study.all_figures(), _evidence(run, about))
    run.write("report.html", page(run))


def index(runs: Iterable[RunFolder], folder: Path) -> str:
    """A page that lists runs, with links to their pages as seen from a folder."""
    rows = sorted((_listed(run, folder) for run in runs), key=lambda row: (row["study"], row["name"]))
    return _page("index.html", f"Hopscope: {counted(len(rows), 'run')}", [], rows=rows)


# One run.


def _view(run: RunFolder, anchor: str) -> View:
    config, held, specs, scripts = run.config, Held(), dict[str, Any](), set[str]()
    known = json.loads(run.read(ABOUT)) if (run.path / ABOUT).is_file() else {}
    study, preset = config["study"], config.get("preset") or ""
    finished = all((run.path / each).is_file() for each in ("evidence.parquet", "claims.json"))
    evidence, rows, drawn = _evidence(run, known, finished), list[Row](), list[Shown]()
    identity = evidence.config["identity"]
    if finished:
        rows, drawn = [*map(row_of, Ledger.from_json(run.read("claims.json")))], read_figures(run)
    elif "loss" in evidence:
        drawn = [shown(figures.curves("loss"), evidence)]

    def figure(found: Shown) -> Markup:
        specs[f"{anchor}-spec-{found.name}"] = found.spec
        return _macro("figure", anchor, found._replace(caption=held.html(found.caption)))

    def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Markup:
        cells, label = [[*map(held.html, row)] for row in rows], held.plain(", ".join(filter(None, columns)))
        return _macro("table", [*map(held.html, columns)], cells, held.html(caption), label)

    def live(kind: str, data: Sequence[Any]) -> Markup:
        scripts.update((_EXPLORER if kind == "explorer" else _PLAYER) if data else ())
        return _macro(kind, anchor, data) if data else Markup()

    blocks: dict[str, Callable[..., Markup]] = {
        "figure": figure, "table": table,
        "claims": lambda: _macro("claims", anchor, rows), "readings": lambda: _macro("readings", rows),
        "explorer": lambda: live("explorer", explorer.models(run, evidence)),
        "circuits": lambda: live("circuits", explorer.circuits(evidence)),
    }  # fmt: skip
    question, name = config.get("question") or "", "page.md.j2" if finished else "unfinished.md.j2"
    task = identity.get("task") and {**identity["task"], "docstring": known.get("docstring", "")}
    about = {each: identity.get(each) or {} for each in ("model", "training", "options")} | {"task": task}
    about["study"] = {"name": study, "question": question, "run": run.path.name, "preset": preset}
    about["units"] = [] if finished else run.units
    story, parts = Story(evidence, about, rows, drawn, blocks, held), known.get("parts") or {}
    name, source = (finished and known.get("template")) or (name, packaged(name) or "")
    text = fill(source, name, story.names(), lambda part: parts.get(part) or packaged(part))
    if rows and "claims" not in story.asked:
        text += f"\n\n## Do the claims hold?\n\n{story.claims()}"
    title, below, sections = held.sections(text)
    words, chart = story.lead or ("", None)
    first = {words: [each.id for each in sections if sign in each.html] for words, sign in _WAYS.items()}
    return {
        "anchor": anchor, "study": study, "preset": preset, "hash": run.path.name, "title": title or study,
        "question": below if title else question, "rows": rows, "tally": tally(row.verdict for row in rows),
        "settings": dict(_flat(_as_trained(config, "by configuration"))), "config": config,
        "lead": held.markdown(words),
        "chart": figure(chart) if chart else "", "circuit": "circuit beside the answer" in story.asked and bool(
            first["Play its circuit"]), "sections": sections, "specs": specs, "scripts": scripts,
        "ways": [(f"{anchor}-{ids[0]}", words) for words, ids in first.items() if ids],
        "evidence": evidence if finished else None,
    }  # fmt: skip


def _evidence(run: RunFolder, known: Mapping[str, Any], finished: bool = True) -> Evidence:
    if not finished:
        losses = (row for unit in run.units for row in unit.rows() if row["metric"] == "loss")
        evidence = Evidence.of(losses, run.members, run.config)
    else:
        evidence = Evidence.read(run)
    evidence.config = {**run.config, "identity": _as_trained(run.config), "floors": known.get("floors", {})}
    return evidence


def _about(run: RunFolder, loaded: Loaded) -> dict[str, Any]:
    # What the page needs of the study, so that it can be built again without the study's file.
    study, folder = loaded.study, loaded.file.parent if loaded.file else Path()
    beside = [path for path in folder.glob("*.md.j2") if path.is_file()] if loaded.file else []
    parts = {path.name: template_text(path) for path in beside}
    jobs = [job_of(unit) for unit in run.units] if study.task is not None else []
    each = ((job, json.loads(json.dumps(task_of(job, study).floors(), default=_plain))) for job in jobs)
    floors = {member.configuration: own for job, own in each for member in job.members}
    found = {"floors": floors, "docstring": type(study.task).__doc__ or "" if jobs else "", "parts": parts}
    return found if study.page is None else {**found, "template": loaded.template()}


def _plain(floors: Any) -> Any:
    # A mapping of another kind, or a number of numpy or torch.
    return floors.item() if hasattr(floors, "item") else dict(floors)


def _as_trained(config: Mapping[str, Any], differs: str | None = None) -> dict[str, Any]:
    """The identity of a run, with what all its units were trained by; of other fields the study's own, or a word."""
    found, units = dict(config.get("identity") or {}), config.get("units") or []
    for name in ("task", "model", "training", "held_out"):
        if every := [unit[name] for unit in units if name in unit]:
            found[name] = _common(every, found.get(name), differs)
    return found


def _common(every: Sequence[Any], own: Any, differs: str | None) -> Any:
    if all(isinstance(each, Mapping) for each in every):
        given = own if isinstance(own, Mapping) else {}
        keys = dict.fromkeys(key for each in every for key in each)
        return {key: _common([each.get(key) for each in every], given.get(key), differs) for key in keys}
    return every[0] if every.count(every[0]) == len(every) else differs or own


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _flat(each, f"{prefix}.{key}" if prefix else str(key))
    elif value is not None:
        yield prefix, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Several runs.


def _name(views: Sequence[View]) -> None:
    several = len({view["study"] for view in views}) > 1
    parts = [[view["study"] * several, view["preset"], view["hash"][:8]] for view in views]
    names = [" ".join(filter(None, each)) for each in parts]
    for at, view in enumerate(views):
        view["name"] = f"{names[at]} ({at + 1})" if names.count(names[at]) > 1 else names[at]


def _compared_chart(views: Sequence[View]) -> Shown | None:
    found = [(view["name"], view["evidence"]) for view in views if view["evidence"] is not None]
    known = {name: evidence for name, evidence in found if evidence.has("loss", measure="training")}
    few = sum(len({*evidence.configurations.values()}) for evidence in known.values()) <= MOST_LINES
    lines = list[dict[str, Any]]()
    for name, evidence in known.items():
        facts = Facts(evidence)
        frame = facts.rows("loss", "the losses").dropna(subset="value")
        frame = frame[~frame["member"].isin(facts.diverged)]
        frame = frame.assign(label=frame[CONFIGURATION] if few else "")
        for (step, label), value in frame.groupby(["step", "label"])["value"].mean().items():
            own = {"run": name, "member": f"{name} {label}", "seed": 0}
            lines.append({**own, "at": int(step), "value": value})
    if not lines:
        return None
    words = "Held-out loss, mean over seeds: a colour for each run, a line for each configuration where they are few."
    made = figures.curves("loss", "run", rows=lambda _: lines, caption=words, name="loss")
    return shown(made, next(iter(known.values())))


def _listed(run: RunFolder, folder: Path) -> dict[str, Any]:
    row: View = {"name": run.path.name, "study": "", "preset": "", "words": "", "link": "", "tally": []}
    try:
        row |= {"study": run.config["study"], "preset": run.config.get("preset") or ""}
        if run.is_concluded:
            row["tally"] = tally(Ledger.from_json(run.read("claims.json")))
            row["words"] = "" if row["tally"] else "no claims"
        else:
            done = sum(unit.is_whole for unit in run.units)
            row["words"] = f"not finished: {done} of {len(run.units)} units"
    except (HopscopeError, KeyError, ValueError) as error:
        row["words"] = f"{error}"
    if (run.path / "report.html").is_file():
        row["link"] = quote(os.path.relpath(run.path / "report.html", folder))
    return row


# Templates and files beside this one.


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("hopscope.page"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, extensions=["jinja2.ext.do"],
    )  # fmt: skip
    made.filters.update(tie=tie, script_json=script_json)
    made.globals.update(signs=SIGNS, state_of=state_of, most_outcomes=MOST_OUTCOMES, most_cells=MOST_CELLS)
    return made


def _macro(name: str, *arguments: Any) -> Markup:
    return getattr(_environment().get_template("blocks.html").module, name)(*arguments)


def _page(template: str, title: str, scripts: Sequence[str], **names: Any) -> str:
    # Files of the package are no words of a user: escaping would break the quotes of scripts and styles.  A browser
    # reads every end of a line as one character before it hashes.
    ends = [script.replace("\r\n", "\n").replace("\r", "\n").encode() for script in scripts]
    known = dict.fromkeys(f"'sha256-{b64encode(sha256(each).digest()).decode()}'" for each in ends)
    policy = f"default-src 'none'; script-src {' '.join(known) or repr('none')}; {_REST}"
    style = Markup(f"{style_sheet()}\n{packaged('style.css')}")
    names |= {"title": title, "style": style, "policy": policy, "scripts": [*map(Markup, scripts)]}
    return _environment().get_template(template).render(names)


def script_json(value: Any) -> Markup:
    """JSON that is safe inside a script element: no `<` is left to end it or to open a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
