"""Tables of the documentation, made from committed results or counted anew: `python docs/tables.py` rewrites them.

A page marks where a table goes with `<!-- table: NAME … -->` and `<!-- end -->`; a test fails if a page says anything
else than its results do.  Figures of committed runs that a page links to are drawn where they
are missing; one that is deleted is drawn anew.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from table_makers import circuits, figures, language, ledger, runs, speed, theory, training

DOCS = Path(__file__).resolve().parent

_PLACE = re.compile(r"(<!-- table: ([a-z-]+)((?: [\w/.-]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)

TABLES: dict[str, Callable[..., str]] = {
    "campaign": training.campaign,
    "finders": speed.finders,
    "formation-order": training.formation_order,
    "growth": speed.growth,
    "heads": language.heads,
    "language-changes": language.language_changes,
    "language-models": language.language_models,
    "learned": training.learned,
    "ledger": ledger.ledger,
    "page": runs.page,
    "permutation-circuits": circuits.permutation_circuits,
    "quick-shapes": training.quick_shapes,
    "recipe-effects": training.recipe_effects,
    "recipes": training.recipes,
    "rereadings": circuits.rereadings,
    "speed": speed.speed,
    "theory": theory.theory,
    "verdicts": runs.verdicts,
    "witnesses": theory.witnesses,
}


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{TABLES[place[2]](*place[3].split())}\n{place[4]}", page)


def main() -> int:
    """Rewrite the tables of every page; of a page with an unknown table, say which, and leave the page as it is."""
    status = 0
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        figures.draw_missing(page)
        unknown = {found[2] for found in _PLACE.finditer(page)} - {*TABLES}
        if unknown:
            print(f"{path.name}: expected tables of {', '.join(TABLES)}, found {', '.join(sorted(unknown))}")
            status = 2
        elif (now := filled(page)) != page:
            path.write_text(now, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
