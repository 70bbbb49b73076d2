"""Figures of committed runs that a page shows, drawn from their evidence where they are missing."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from hopscope.page.files import write_figures
from hopscope.runs import RunFolder
from table_makers.common import RESULTS, read_json, study_of, with_floors

_LINK = re.compile(r"\]\(results/([\w/.-]+)/(figures/[\w.-]+\.(?:svg|png))\)")


def draw_missing(page: str) -> None:
    """Draw every figure that a page links to and no file holds; `UserError`: it cannot be drawn.

    `OSError`: the study of its run has no such figure.
    """
    for run, name in _LINK.findall(page):
        if not (RESULTS / run / name).exists():
            _draw(run, Path(name))


def _draw(run: str, name: Path) -> None:
    study = study_of(run)
    with TemporaryDirectory() as folder:
        drawn = RunFolder(Path(folder) / "run").create(read_json(f"{run}/config.json"))
        write_figures(drawn, study.all_figures(), with_floors(run, study))
        content = (drawn.path / name).read_bytes()
    target = RESULTS / run / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(content)
