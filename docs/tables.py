"""Tables of the documentation, made from committed results or counted anew: `python docs/tables.py` rewrites them.

A page marks where a table goes with `<!-- table: NAME -->` and `<!-- end -->`; a test fails if a page says anything
else than its results do.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from table_makers import circuits, fuzzing, language, speed, theory, training, verdicts, zoo

DOCS = Path(__file__).resolve().parent

_PLACE = re.compile(
    r"(<!-- table: (?P<name>[a-z-]+)(?P<what>( [\w/.-]+)*) -->\n).*?(<!-- end -->)", re.DOTALL
)

TABLES: dict[str, Callable[..., str]] = {
    "atheris": fuzzing.atheris,
    "faults": fuzzing.faults,
    "campaign": training.campaign,
    "campaign-late": training.campaign_late,
    "formation-order": training.formation_order,
    "quick-shapes": training.quick_shapes,
    "details": training.details,
    "recipes": training.recipes,
    "recipe-effects": training.recipe_effects,
    "verdicts": verdicts.verdicts,
    "judged-anew": verdicts.judged_anew,
    "two-proofs": circuits.two_proofs,
    "bounds": verdicts.bounds,
    "transfers": circuits.transfers,
    "reread": circuits.reread,
    "controls": verdicts.controls,
    "memoriser": verdicts.memoriser,
    "story": verdicts.story,
    "rereadings": circuits.rereadings,
    "old-beside-new": circuits.old_beside_new,
    "steps-beside": speed.steps_beside,
    "speed": speed.speed,
    "growth": speed.growth,
    "solved": speed.solved,
    "lent": speed.lent,
    "heads": language.heads,
    "head-targets": language.head_targets,
    "pretrained-heads": language.pretrained_heads,
    "ways-to-ask": language.ways_to_ask,
    "language-answers": language.language_answers,
    "language-changes": language.language_changes,
    "language-models": language.language_models,
    "reading": speed.reading,
    "permutation-circuits": circuits.permutation_circuits,
    "repeat-rows": circuits.repeat_rows,
    "external-plants": zoo.external_plants,
    "finders": zoo.finders,
    "finder-truth": zoo.finder_truth,
    "members": zoo.members,
    "members-rounded": zoo.members_rounded,
    "witnesses": theory.witnesses,
    "witness-plan": theory.witness_plan,
    "theory": theory.theory,
    "theory-orders": theory.theory_orders,
}


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return _PLACE.sub(
        lambda place: f"{place[1]}\n{TABLES[place['name']](*place['what'].split())}\n{place[5]}", page
    )


def main() -> int:
    """Rewrite the tables of every page."""
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        path.write_text(filled(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
