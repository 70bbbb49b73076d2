"""A campaign that trains models for days beside other work.

Commands: start | status | pause | resume | stop | accept | collect | conclude.

`python campaigns/background.py start` makes a source tree and an environment of its own, at one commit, and trains
the models of a queue (`paper_models.json`) at the lowest priority, one thread a core.  It may be called at any time:
it goes on after a crash, a reboot, or on another machine with whatever is still there.  It needs only Python;
README.md has the rest.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
QUEUE = "campaigns/paper_models.json"
TOGETHER = "together.json"
"""File of a unit that was trained with others on a lent machine: on what device, with which, by which program."""
RESULTS = REPOSITORY / "docs" / "results" / "campaign"
PATIENCE_SECONDS = 20.0
_CHECKPOINT = re.compile(r"step-(\d{9,})\.safetensors")


class Refused(Exception):
    """What the user can mend, in one line."""


class Home:
    """The folder of a campaign, outside any checkout.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path):
        self.path = path

    @property
    def source(self) -> Path:
        """The source tree that trains."""
        return self.path / "source"

    @property
    def python(self) -> Path:
        """The interpreter of the campaign's own environment."""
        given = self.record().get("python")
        return Path(given) if given else self.source / ".venv" / "bin" / "python"

    def record(self) -> dict[str, Any]:
        """Commit, queue and protocols: what the campaign was begun with; empty before its first start.

        Raises:
            Refused: the file holds another record.
        """
        return _checked(self.path / "campaign.json", _read(self.path / "campaign.json"), _RECORD)

    def write(self, name: str, value: object) -> None:
        """Write a file of the campaign at once or not at all."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.tmp")
        aside.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        aside.replace(path)

    @property
    def results(self) -> Path:
        """Where what was trained is kept for good."""
        return Path(self.record().get("results") or RESULTS)

    def log(self, words: str) -> None:
        """Add a line to the campaign's log."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (self.path / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{now} {words}\n")

    @property
    def paused(self) -> Path:
        """A file that is there while nothing shall be trained."""
        return self.path / "paused"

    def state(self) -> dict[str, Any]:
        """What the trainer said last: its process, its workers, what failed; empty where that cannot be read."""
        found = _read(self.path / "state.json")
        workers, failed = found.get("workers", []), found.get("failed", {})
        plain = isinstance(workers, list) and all(isinstance(each, dict) for each in workers)
        named = plain and all(isinstance(each.get("unit"), str) for each in workers)
        return found if named and isinstance(failed, dict) else {}

    def models(self) -> list[dict[str, Any]]:
        """The models of the queue, as the trainer listed them; none before it has.

        Raises:
            Refused: the file holds another record, or a folder outside the campaign.
        """
        path = self.path / "models.json"
        found = _read(path).get("models", [])
        models = (
            [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else [{}]
        )
        for model in models:
            _checked(path, model or {"": None}, _MODEL)
            places = [model["reading"], model["unit"], *Path(model["folder"]).parts]
            if not all(_NAME.fullmatch(place) for place in places):
                raise Refused(f"{path}: expected folders within the campaign, found {places}; restore it")
        return models

    def lives(self) -> bool:
        """Whether a trainer is at work; it holds the lock as long as it lives."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_NAME = re.compile(r"[\w=-][\w .=-]*")
"""Of one folder or file: nothing that leads out of where it stands."""

_RECORD: dict[str, Any] = {"commit": str, "queue": str, "cores": int}
_MODEL: dict[str, Any] = {
    "reading": str,
    "unit": str,
    "folder": str,
    "member": int,
    "steps": int,
    "batch": int,
}


def _checked(path: Path, record: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """A record with its fields, or an empty one."""
    further = {name: str for name in ("python", "results") if record.get(name) is not None}
    wrong = [name for name, kind in (fields | further).items() if type(record.get(name)) is not kind]
    if record and wrong:
        raise Refused(f"{path}: expected {', '.join(fields)}, found no valid {', '.join(wrong)}; restore it")
    return record


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command says; the exit status is 0, or 2 for what the user can mend."""
    options = read_options(arguments)
    home = Home(options.home.expanduser().resolve())
    try:
        if options.command == "start":
            start(home, options)
        elif not home.record():
            raise Refused(
                f"{home.path}: expected a campaign, found none; start one with `background.py start`"
            )
        else:
            does = {"status": status, "pause": pause, "resume": resume, "stop": stop, "collect": collect}
            does["conclude"] = lambda home: conclude(home, options.reading)
            does["accept"] = lambda home: accept(home, options.pack)
            does[options.command](home)
    except BrokenPipeError:
        return 1  # whoever reads has seen enough
    except (Refused, OSError) as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command and its options."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    parser = argparse.ArgumentParser(prog="background.py", description=__doc__, allow_abbrev=False)
    commands = ["start", "status", "pause", "resume", "stop", "accept", "collect", "conclude"]
    parser.add_argument("command", choices=commands)
    parser.add_argument("--reading", default="", help="with conclude: which reading of the queue to judge")
    parser.add_argument("--pack", type=Path, default=Path("pack"), help="with accept: what lent.py packed")
    parser.add_argument(
        "--home", type=Path, default=state / "hopscope-campaign", help="folder of the campaign"
    )
    parser.add_argument(
        "--queue", default=QUEUE, help="file with what is trained, relative to the source tree"
    )
    parser.add_argument("--commit", help="train by this commit from now on (by default by the first one)")
    parser.add_argument("--cores", type=int, help="models at a time; by default one for each core")
    parser.add_argument(
        "--results", type=Path, help="folder for what is collected; by default docs/results/campaign"
    )
    parser.add_argument("--python", type=Path, help="interpreter of an environment that is there already")
    return parser.parse_args(arguments)


def start(home: Home, options: argparse.Namespace) -> None:
    """Begin, or go on; where a trainer is at work, only end its pause.

    Raises:
        Refused: the source tree or the environment cannot be made.
    """
    home.paused.unlink(missing_ok=True)
    if home.lives():
        if options.commit or options.cores:
            raise Refused("a trainer is at work: expected no --commit and no --cores; stop it first")
        print(f"at work already, in {home.path}")
        return
    _note(home, options)
    _prepare(home)
    _note_protocols(home)
    command = [str(home.python), str(home.source / "campaigns" / "training.py"), str(home.path)]
    environment = {**os.environ, "PYTHONPATH": str(home.source / "src"), "OMP_NUM_THREADS": "1"}
    with (home.path / "trainer.txt").open("ab") as output:
        trainer = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=home.path,
            start_new_session=True,
        )  # fmt: skip
    _await(lambda: home.state().get("pid") == trainer.pid or trainer.poll() is not None)
    if trainer.poll():
        last = (home.path / "trainer.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise Refused(
            f"expected a trainer that runs, found that it ended: {last[-1] if last else 'no message'}"
        )
    print(f"started, in {home.path}")


def _note(home: Home, options: argparse.Namespace) -> None:
    """Write down what the campaign trains and by what, before anything is trained."""
    record = home.record()
    before = record.get("commit")
    commit = _git("rev-parse", f"{options.commit or before or 'HEAD'}^{{commit}}")
    record = {"queue": options.queue, **record, "commit": commit, "cores": options.cores or os.cpu_count()}
    for name, given in (("results", options.results), ("python", options.python)):
        if given is not None:
            record[name] = str(given.resolve() if name == "results" else given)
    record.setdefault("results", str(RESULTS))
    if commit != before:
        record["commits"] = [
            *record.get("commits", []),
            {"commit": commit, "since": datetime.now(UTC).isoformat()},
        ]
    home.write("campaign.json", record)


def _prepare(home: Home) -> None:
    """The source tree at its commit, and its environment."""
    commit = home.record()["commit"]
    if not (home.source / ".git").exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--force", "--detach", str(home.source), commit)
    elif _git("-C", str(home.source), "rev-parse", "HEAD") != commit:
        _git("-C", str(home.source), "checkout", "--quiet", "--detach", commit)
    if home.record().get("python"):
        return
    print("making the environment", flush=True)
    made = subprocess.run(
        ["make", "-C", str(home.source), ".venv/installed"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        last = (made.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refused(f"{home.source}: expected an environment, found {last}")


def _note_protocols(home: Home) -> None:
    """Write down by which rules the models will be judged, once: file, content and the commit that wrote it."""
    record = home.record()
    name = json.loads((home.source / record["queue"]).read_text(encoding="utf-8")).get("protocols")
    if name is not None and "protocols" not in record:
        content = (home.source / name).read_bytes()
        wrote = _git("-C", str(home.source), "log", "-1", "--format=%H", "--", name)
        protocols = {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "commit": wrote}
        home.write("campaign.json", {**record, "protocols": protocols})


def _git(*arguments: str, strip: bool = True) -> str:
    done = subprocess.run(
        ["git", *([] if arguments[0] == "-C" else ["-C", str(REPOSITORY)]), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refused(f"git {' '.join(arguments)}: {last}")
    return done.stdout.strip() if strip else done.stdout


def pause(home: Home) -> None:
    """Stop training until `resume` or `start`; nothing is lost, and no time of a core is used.

    Raises:
        Refused: a worker goes on.
    """
    home.paused.touch()
    if home.lives() and not _await(lambda: home.state().get("paused") is True):
        raise Refused("expected the trainer to pause, found it at work; try again")
    print("paused")


def resume(home: Home) -> None:
    """Go on after a pause."""
    home.paused.unlink(missing_ok=True)
    print("resumed" if home.lives() else "no trainer is at work: start it")


def stop(home: Home) -> None:
    """End the trainer; what was trained since the last checkpoint is trained again.

    Raises:
        Refused: it does not end.
    """
    if home.lives():
        os.kill(_trainer(home), signal.SIGTERM)
        if not _await(lambda: not home.lives()):
            raise Refused("expected the trainer to end, found it at work; try again")
    print("stopped")


def _trainer(home: Home) -> int:
    """The process of the trainer that is at work; never another, whatever a damaged file says.

    Raises:
        Refused: no such process is known.
    """
    pid = home.state().get("pid")
    if type(pid) is int and pid > 1:
        command = Path(f"/proc/{pid}/cmdline")
        # Where the system does not tell, the number is believed.
        words = (
            command.read_bytes().split(b"\0")
            if Path("/proc/self/cmdline").exists() and command.exists()
            else None
        )
        ours = str(home.path).encode() in (words or [])
        if ours or (words is None and not Path("/proc/self/cmdline").exists()):
            return pid
    raise Refused(
        f"{home.path / 'state.json'}: expected the trainer's process, found none; end the trainer by hand"
    )


def status(home: Home) -> None:
    """Say for every model of the queue how far it is."""
    record, state = home.record(), home.state()
    lives = home.lives()
    words = "not at work" if not lives else "paused" if state.get("paused") else "at work"
    print(f"{words} in {home.path}, commit {record['commit'][:12]}, {record['cores']} models at a time")
    working = {worker["unit"] for worker in state.get("workers", [])} if lives else set()
    for model in home.models():
        print(f"  {model['reading']:16} seed {model['member']}  {_told(home, model, working, state)}")


def _told(home: Home, model: dict[str, Any], working: set[str], state: dict[str, Any]) -> str:
    collected = (home.results / model["reading"] / "units" / model["unit"] / "collected.json").is_file()
    failed = state.get("failed", {}).get(model["unit"])
    step = last_step(home.path / model["folder"])
    if step == model["steps"]:
        read = (home.path / model["folder"] / "DONE").is_file()
        reading = "read" if read else "being read" if model["unit"] in working else "to be read"
        return f"trained, {reading}{', collected' if collected else ''}"
    if collected:
        return "collected"
    if failed is not None:
        return f"failed at step {step or 0:,}: {failed}"
    if step is None and model["unit"] not in working:
        return "waits"
    rate = _rate(home.path / "logs" / f"{model['unit']}.jsonl", model["batch"])
    told = f"step {step or 0:,} of {model['steps']:,}"
    if model["unit"] not in working:
        return f"{told}, waits"
    return (
        told
        if rate is None
        else f"{told}, {rate:.2f} steps/s, {(model['steps'] - (step or 0)) / rate / 3600:.1f} h left"
    )


def last_step(unit: Path) -> int | None:
    """Step of a unit's newest checkpoint."""
    folder = unit / "checkpoints"
    names = [_CHECKPOINT.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(match[1]) for match in names if match), default=None)


def _rate(log: Path, batch: int) -> float | None:
    """Steps per second that a worker said last."""
    if not log.is_file():
        return None
    for line in reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()[-50:]):
        try:
            rate = float(json.loads(line)["samples_per_second"]) / batch
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            continue
        if 0 < rate < float("inf"):
            return rate
    return None


def accept(home: Home, pack: Path) -> None:
    """Take models that were trained on a lent machine into the campaign.

    Raises:
        Refused: a trainer is at work, or the pack is damaged.
    """
    if _run(home, "accepting.py", str(pack)):
        raise Refused("expected to take the models of a pack, found the fault above")


def collect(home: Home) -> None:
    """Copy the record and the readings of every trained model into the results; what is there already stays.

    Raises:
        Refused: a file is damaged or cannot be written.
    """
    if _run(home, "collecting.py"):
        raise Refused("expected to collect every trained model, found the fault above")


def conclude(home: Home, reading: str) -> None:
    """Judge what was collected of a reading, by the rules of this source tree, in a run folder of its own.

    Raises:
        Refused: there is no such reading, nothing of it is collected, or a file is damaged.
    """
    if _run(home, "concluding.py", reading):
        raise Refused("expected to conclude what was collected, found the fault above")


def _run(home: Home, script: str, *words: str) -> int:
    """Run a script of this source tree in the campaign's environment; returns its exit status."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    path = REPOSITORY / "campaigns" / script
    command = [str(home.python), str(path), str(home.path), str(home.results), *words]
    return subprocess.run(command, env=environment, check=False).returncode


def _await(holds: Any) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


if __name__ == "__main__":
    sys.exit(main())
