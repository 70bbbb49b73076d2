"""Builds what is released, installs it where nothing of the repository is, and uses it there: `make release-check`.

1. Wheel and source distribution are built by `python -m build` from a copy of the repository's files.
2. Both hold what they must, and every place tells the same version.
3. An environment of its own gets torch and the wheel. There, in an empty folder and without make, a study is run,
   found again, judged and shown, and a new study is begun and run.
4. With `--tests`, the source distribution is unpacked and its quick tests run against the installed wheel.

With `--lowest`, every dependency has the oldest version that `pyproject.toml` allows (`constraints-lowest.txt`).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import distributions
import lowest

ROOT = distributions.ROOT

QUICK = [f"tests/{room}" for room in ("circuits", "claims", "models", "runs", "tasks", "theory", "training")]
"""What `make quick` runs."""

_WHERE = "import hopscope, pathlib, sys; print(pathlib.Path(hopscope.__file__).parent)"
_TOO_NEW_OR_OLD = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"


class Place:
    """A folder with a virtual environment, in which commands see nothing of the repository."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        say(f"an environment of {python}")
        self.run(python, "-c", _TOO_NEW_OR_OLD)
        self.run(python, "-m", "venv", str(folder / "venv"))

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """What the command prints on standard output.

        Raises:
            SystemExit: it failed; what it printed has been shown.
        """
        kept = {name: os.environ[name] for name in os.environ if not name.startswith(("PYTHON", "HOPSCOPE"))}
        environ = kept | {"XDG_CACHE_HOME": str(self.folder / "cache"), "PATH": f"{self.bin}:{kept['PATH']}"}
        done = subprocess.run(
            command,
            cwd=cwd or self.work,
            env=environ,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
            raise SystemExit(f"release-check: exit status {done.returncode} of {' '.join(command)}")
        return done.stdout

    def pip(self, *arguments: str) -> None:
        """Installs into the environment."""
        python = str(self.bin / "python")
        self.run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)

    def hopscope(self, *arguments: str) -> str:
        """The installed command's output."""
        began = time.monotonic()
        said = self.run(str(self.bin / "hopscope"), *arguments)
        say(f"hopscope {' '.join(arguments)}: {time.monotonic() - began:.0f} s")
        return said


def say(words: str) -> None:
    """One line of progress."""
    print(f"release-check: {words}", flush=True)


def build(home: Path, python: str) -> tuple[Path, Path]:
    """Wheel and source distribution by the command that a release uses, checked."""
    tree = distributions.copied(home / "tree")
    builder = Place(home / "builder", python)
    builder.pip("build")
    builder.run(str(builder.bin / "python"), "-m", "build", "--outdir", str(home / "dist"), cwd=tree)
    (wheel,), (sdist,) = (home / "dist").glob("*.whl"), (home / "dist").glob("*.tar.gz")
    faults = distributions.wheel_faults(wheel, ROOT) + distributions.sdist_faults(sdist, ROOT)
    faults += distributions.version_faults(ROOT)
    if lowest.main(["--check"]):
        faults.append("constraints-lowest.txt: out of date")
    if faults:
        raise SystemExit("\n".join(["release-check: not fit to be released", *faults]))
    for path in (wheel, sdist):
        say(f"{path.name}, {path.stat().st_size / 1e6:.1f} MB")
    return wheel, sdist


def use(place: Place, version: str) -> None:
    """Uses the installed wheel as a newcomer does, far from the source tree."""
    where = place.run(str(place.bin / "python"), "-c", _WHERE).strip()
    if not Path(where).is_relative_to(place.folder):
        raise SystemExit(f"release-check: expected the installed package, found {where}")
    told = place.hopscope("--version").strip()
    if told != f"hopscope {version}":
        raise SystemExit(f"release-check: expected hopscope {version}, found {told}")
    place.hopscope("studies")
    command = ("run", "permutation", "--preset", "smoke", "--out", "runs")
    first, again = (place.hopscope(*command).splitlines()[-1] for _ in range(2))
    if first != again:
        raise SystemExit(f"release-check: expected {first} to be found again, found {again}")
    page = place.work / first / "report.html"
    page.unlink()
    place.hopscope("report", first)
    text = page.read_text(encoding="utf-8")
    if "vegaEmbed" not in text or len(text) < 500_000:
        raise SystemExit(f"release-check: {page} lacks its charts ({len(text)} characters)")
    place.hopscope("claims", first)
    place.hopscope("theory", "--steps", "3")
    place.hopscope("new", "study", "echo")
    place.hopscope("run", "echo.py", "--preset", "smoke", "--out", "runs")


def test(place: Place, sdist: Path) -> None:
    """The quick tests of the unpacked source distribution, against the installed wheel."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place.folder / "unpacked", filter="data")
    (tree,) = (place.folder / "unpacked").iterdir()
    shutil.rmtree(tree / "src" / "hopscope.egg-info", ignore_errors=True)
    options = (
        "-p",
        "no:cacheprovider",
        "-q",
        "-n",
        "0",
        "-m",
        "not soak and not extras and not long",
        *QUICK,
    )
    began = time.monotonic()
    said = place.run(str(place.bin / "python"), "-m", "pytest", *options, cwd=tree)
    say(f"quick tests: {said.splitlines()[-1]} ({time.monotonic() - began:.0f} s)")


def main() -> None:
    """Everything in turn; ends with exit status 1 and the reason at the first thing that is not as it must be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the Python to check with (3.11 to 3.13)")
    parser.add_argument("--torch", default="torch==2.13.0", help="what pip is asked for before the wheel")
    parser.add_argument("--lowest", action="store_true", help="with the oldest versions that are allowed")
    parser.add_argument(
        "--tests", action="store_true", help="the quick tests as well (installs fast and dev)"
    )
    parser.add_argument(
        "--home", type=Path, help="a new folder to work in, which is kept; else a temporary one"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = (given.home or Path(temporary) / "release").resolve()
        home.mkdir(parents=True)
        wheel, sdist = build(home, sys.executable)
        place = Place(home / "clean", given.python)
        bounds = ["--constraint", str(ROOT / "constraints-lowest.txt")] if given.lowest else []
        place.pip(*bounds, "torch" if given.lowest else given.torch)
        place.pip(*bounds, f"{wheel}[fast,dev]" if given.tests else str(wheel))
        say(", ".join(place.run(str(place.bin / "python"), "-m", "pip", "freeze").splitlines()))
        use(place, distributions.version_of(ROOT))
        if given.tests:
            test(place, sdist)
    say("all is well")


if __name__ == "__main__":
    main()
