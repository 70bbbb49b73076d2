"""Take models that `lent.py` trained elsewhere: `accepting.py HOME RESULTS PACK`, which `background.py accept` calls.

Every model of the pack that is trained to its end takes its place in the campaign, as if it had been trained here.  If
its training had begun here, that part is deleted.  `together.json` of its unit says where it was trained, and `collect`
keeps that.  A model that was not read there in time is read here; its earlier checkpoints are gone, so nobody will
know when its paths formed.
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
            ours = UnitFolder(home.path / model["folder"])
            theirs = UnitFolder(Path(scratch) / ours.path.relative_to(home.path / "runs"))
            if _is_ahead(theirs, ours, model["steps"]):
                if not (theirs.path / TOGETHER).is_file():
                    raise Refused(f"{pack}: expected a pack that lent.py made, found no {TOGETHER} in it")
                shutil.rmtree(ours.path, ignore_errors=True)
                theirs.path.rename(ours.path)  # whole or not at all, whenever this is killed
                unread = "" if ours.is_done else ", to be read here: start the campaign"
                taken.append(f"{model['reading']} seed {model['member']}{unread}")
    return taken


def _is_ahead(theirs: UnitFolder, ours: UnitFolder, last: int) -> bool:
    """Whether a model is read there and not here, or trained to its last step there and not here."""
    if theirs.is_done or ours.is_done:
        return not ours.is_done
    return last in dict(theirs.checkpoints()) and last not in dict(ours.checkpoints())


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
