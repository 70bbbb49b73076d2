"""Every command of the documentation parses: its name, its study, its preset, its flags.  None is run."""

import re
import shlex
from importlib import import_module

import pytest

from hopscope.cli import COMMANDS
from hopscope.cli.parsing import bound
from hopscope.cli.run import read_options
from hopscope.errors import UserError
from hopscope.study.load import load

from .pages import DOCS, PAGES, ROOT, blocks_of, name_of, prose_of, text_of

STANDS_FOR = {"STUDY": "depth", "FILE.py": "copying.py", "FILE": "copying.py", "D": "3", "N": "3", "I": "0"}
CHOSEN = ("--tracker NAME", "--suite NAME", "--executor NAME", "--FIELD", "--preset NAME", "hopscope COMMAND")
"""What stands for a choice."""


def commands_of(page):
    """Command lines of a page, with their line."""
    lines = list[tuple[str, int]]()
    for _, text, first in (each for each in blocks_of(page) if not each[0].startswith("python")):
        whole = re.sub(r"\\\n\s*", "", text)
        lines += [(line, first + at) for at, line in enumerate(whole.splitlines())]
    for found in re.finditer(r"`(hopscope [^`]+ [^`]+)`", prose_of(page)):
        lines.append((" ".join(found[1].split()), prose_of(page).count("\n", 0, found.start()) + 1))
    for line, number in lines:
        words = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*hopscope (.+)", line)
        if words is None or any(choice in line for choice in CHOSEN):
            continue
        for given in re.split(r" · hopscope | && hopscope ", words[1]):
            command = re.split(r"\s{2,}| #| \| | > |…| · ", given)[0].replace("[--json]", "")
            if not re.search(r"[\[\]|]", command):
                yield command.strip(), number


def understood(words, files):
    """Raise `UserError` where the words are no command."""
    name, *given = words
    if name.startswith("-"):
        return
    if name not in COMMANDS:
        raise UserError(f"command: expected one of {', '.join(COMMANDS)}, found {name}")
    if name == "run":
        if given[:1] in ([], ["--help"]):
            return
        study = STANDS_FOR.get(given[0], given[0])
        known = [path for path in (ROOT / "examples" / study, files / study) if path.is_file()]
        study = str(known[0]) if known else study
        rest = [STANDS_FOR.get(word, word) for word in given[1:] if word != "--help"]
        read_options(load(study), rest, given[0])
        return
    module = import_module(f"hopscope.cli.{COMMANDS[name][0]}")
    bound(getattr(module, name), [STANDS_FOR.get(word, word) for word in given if word != "--help"])
    if name == "bench" and "--suite" in given:
        suite = given[given.index("--suite") + 1]
        if not (ROOT / "benchmarks" / f"{suite}.py").is_file():
            raise UserError(f"suite: found {suite}")


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) != "CHANGELOG.md"], ids=name_of)
def test_commands_parse(page, tmp_path):
    for kind, text, _ in blocks_of(page):
        own = re.search(r"file=(\S+)", kind) or re.match(r'"""(\w+\.py)\b', text)
        if own:
            (tmp_path / own[1]).write_text(text, encoding="utf-8")
    wrong = []
    for command, line in commands_of(page):
        try:
            words = shlex.split(command)
            if words:
                understood(words, tmp_path)
        except (UserError, ValueError) as error:
            wrong.append(f"line {line}: hopscope {command}: {error}")
    assert not wrong


def test_make_targets_exist():
    makefile = text_of(ROOT / "Makefile")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", DOCS / "releasing.md"]
    named = {
        target
        for page in pages
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text_of(page), re.MULTILINE)
    }
    assert named and not [target for target in named if f"\n{target}:" not in makefile]
