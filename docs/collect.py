"""Keep a finished run under docs/results: `python docs/collect.py RUN permutation/laptop`.

Everything that the documentation is made from, and what tells where it came from; not the checkpoints and exported
models, the metric parts (metrics.parquet has them), Inspect's logs and the clock's events, which know the machine, and
the page and drawings, which `hopscope report` makes again from the rest.
"""

import json
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
LEFT_OUT = ("checkpoints", "metrics", "models", "logs", "events.jsonl", "report.html", "*.svg", ".*")


def main(arguments: list[str]) -> int:
    """Copy a run."""
    if len(arguments) != 2:
        print(
            "collect: expected RUN and NAME, as in: python docs/collect.py runs/… permutation/laptop",
            file=sys.stderr,
        )
        return 2
    run, to = Path(arguments[0]), RESULTS / arguments[1]
    if not (run / "DONE").is_file():
        print(
            f"{run}: expected a finished run, found no DONE; run the study to its end first", file=sys.stderr
        )
        return 2
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run, to, ignore=shutil.ignore_patterns(*LEFT_OUT))
    _without_folder(to / "study.json")
    return 0


def _without_folder(study: Path) -> None:
    """The record of a study of one's own names its file; where that stood is the machine's affair."""
    if study.is_file():
        record = json.loads(study.read_text(encoding="utf-8"))
        record["reference"] = Path(record["reference"]).name
        study.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
