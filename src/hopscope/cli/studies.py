"""`hopscope studies`."""

import dataclasses
import json

from hopscope.cli.parsing import parse
from hopscope.studies import STUDY_NAMES, find_study


@dataclasses.dataclass
class Options:
    """List the studies, their presets and what they cost."""

    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse(Options, arguments, "studies")
    studies = [find_study(name) for name in STUDY_NAMES]
    listed = [
        {
            "study": study.name,
            "summary": study.summary,
            "presets": [
                {"preset": name, "cost": study.costs[name], "config": config.model_dump(mode="json")}
                for name, config in study.presets.items()
            ],
        }
        for study in studies
    ]
    if options.json:
        print(json.dumps(listed, indent=1))
        return 0
    for study in studies:
        print(f"{study.name}: {study.summary}")
        for name in study.presets:
            default = " (default)" if name == "laptop" else ""
            print(f"  --preset {name}{default}: {study.costs[name]}")
    return 0
