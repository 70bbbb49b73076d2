"""Tables of committed runs: their verdicts, and what their studies' pages say of the evidence."""

from functools import cache
from typing import Any

from markupsafe import Markup

from hopscope.claims.judge import judge
from hopscope.claims.verdict import Verdict, true_by
from hopscope.page.figures import named
from hopscope.page.files import Shown
from hopscope.page.story import Story
from hopscope.page.template import Held, fill
from hopscope.page.theme import packaged
from hopscope.page.verdicts import row_of
from hopscope.study.load import BUILT_IN, load
from table_makers.common import (
    completion_of,
    estimates,
    evidence_of,
    markdown,
    read_json,
    study_of,
    with_floors,
)

HERE = {"reproduced": "holds", "refuted": "fails", "inconclusive": "open"}
"""Verdict at a run's own scale → the word of pages and ledgers."""


def verdicts(run: str) -> str:
    """Every claim of a run that was run, by today's rules; what it was judged then stands beside where that differs."""
    then = {claim["id"]: claim for claim in read_json(f"{run}/claims.json")}
    built_in = read_json(f"{run}/config.json")["study"] in BUILT_IN
    rows = []
    for claim in [each.model_dump(mode="json") for each in judged(run)] if built_in else then.values():
        before = then.get(claim["id"], claim)["verdict"]
        if before == claim["verdict"] == "not run":
            continue
        value, here = estimates(claim["value"], claim["interval"]), claim.get("here") or {}
        shown = [claim["id"], claim["statement"], value, str(claim["n"])]
        was = "" if before == claim["verdict"] else f" (then {before})"
        rows.append([*shown, HERE.get(here.get("verdict"), "–"), of_source(claim) + was])
    columns = ["claim", "statement", "value [95 % interval]", "n", "at this run's own scale", "of the source"]
    return markdown(columns, rows)


def of_source(claim: dict[str, Any]) -> str:
    """The verdict about the source; of a claim that a theorem or the architecture decides, marked as that."""
    why = true_by(claim.get("structural", False))
    told = {"reproduced": why, "refuted": "refuted, by construction"} if why else {}
    return str(told.get(claim["verdict"], claim["verdict"]))


@cache
def judged(run: str) -> list[Verdict]:
    """The verdicts of a run by today's rules."""
    study, evidence = study_of(run), evidence_of(run)
    return [judge(claim, evidence, completion=completion_of(run)) for claim in study.all_claims()]


@cache
def tables(run: str) -> list[tuple[list[str], list[list[str]], str]]:
    """Columns, rows and caption of every table of the page that a run's study would make of its evidence."""
    loaded, study, held, found = load(read_json(f"{run}/config.json")["study"]), study_of(run), Held(), []
    evidence, config = with_floors(run, study), read_json(f"{run}/config.json")

    def table(columns: Any, rows: Any, caption: str) -> Markup:
        plain = [[held.plain(cell) for cell in row] for row in (columns, *rows)]
        found.append((plain[0], plain[1:], held.plain(caption)))
        return Markup()

    blocks = dict.fromkeys(("figure", "claims", "readings"), lambda *_: Markup()) | {"table": table}
    blocks |= dict.fromkeys(("explorer", "circuits"), lambda: Markup())
    about = {name: config["identity"][name] or {} for name in ("task", "model", "training", "options")}
    about["study"] = {"name": study.name, "question": study.question, "run": run, "preset": config["preset"]}
    undrawn = [Shown(each.name, {}, "", "–") for each in named(study.all_figures())]
    story = Story(evidence, about, [*map(row_of, judged(run))], undrawn, blocks, held)
    assert loaded.file is not None and study.page is not None
    parts = {path.name: path.read_text(encoding="utf-8") for path in loaded.file.parent.glob("*.md.j2")}
    fill(parts[study.page], study.page, story.names(), lambda part: parts.get(part) or packaged(part))
    return found


def page(run: str, number: str) -> str:
    """A table of the page of a run, by its number from 0."""
    columns, rows, caption = tables(run)[int(number)]
    return markdown(columns, rows) + (f"\n*{caption}*\n" if caption else "")
