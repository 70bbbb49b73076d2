"""Take models that `lent.py` trained elsewhere: `accepting.py HOME RESULTS PACK`, which `background.py accept` calls.

Every model of the pack that is trained and read takes its place in the campaign, as if it had been trained here.  If
its training had begun here, that part is deleted.  `together.json` of its unit says where it was trained, and `collect`
keeps that.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from background import TOGETHER, Home, Refused
from packing import unpack

from hopscope.errors import UserError
from hopscope.runs import UnitFolder


def accept(home: Home, pack: Path) -> list[str]:
    """Take what is new; returns a line for each model that was taken.

    Raises:
        Refused: a trainer is at work, which would not see them.
        UserError: the pack is missing or damaged.
    """
    if home.lives():
        raise Refused("a trainer is at work: stop it first, then start it again")
    taken = []
    with tempfile.TemporaryDirectory(dir=home.path) as scratch:
        unpack(pack, Path(scratch))
        for model in home.models():
            ours = home.path / model["folder"]
            theirs = UnitFolder(Path(scratch) / ours.relative_to(home.path / "runs"))
            if theirs.is_done and not UnitFolder(ours).is_done:
                if not (theirs.path / TOGETHER).is_file():
                    raise Refused(f"{pack}: expected a pack that lent.py made, found no {TOGETHER} in it")
                shutil.rmtree(ours, ignore_errors=True)
                theirs.path.rename(ours)  # whole or not at all, whenever this is killed
                taken.append(f"{model['reading']} seed {model['member']}")
    return taken


def main(home: str, _: str, pack: str) -> int:
    """Take them, and say which."""
    try:
        taken = accept(Home(Path(home)), Path(pack))
    except (UserError, Refused, OSError) as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    print("\n".join([*(f"took {each}" for each in taken), f"{len(taken)} new; collect them"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
