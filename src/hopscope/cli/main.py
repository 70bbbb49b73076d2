"""`hopscope COMMAND …`: finds the command, turns errors into one line and an exit status."""

import importlib
import io
import os
import sys
from collections.abc import Sequence

from hopscope.cli.ending import Asked, obeying
from hopscope.cli.streams import open_closed, saying, settle_output

COMMANDS = {
    "studies": "what there is: presets, expected cost",
    "new": "begin a study of your own: a file, its page and its test",
    "run": "train and analyse a study, or go on where it stopped",
    "claims": "the ledger of a run: every claim with its verdict",
    "report": "build the page of one run, or of several",
    "circuit": "the circuit of one trained member, read and proven by ablation",
    "diagnose": "which known failure each member of a run on chains shows",
    "theory": "how many layers a retrieval chain needs: the published bound and the exact minimum",
    "questions": "retrieval questions in words, for language models",
    "heads": "what the heads of a pretrained model attend to, and what is lost without them",
    "corpus": "how many retrieval steps the words of a text need",
    "export": "write one trained member as a Hugging Face folder with a model card",
    "track": "send what a run has recorded to TensorBoard, Weights & Biases or trackio",
    "zoo": "planted models with known circuits, scores of circuit finders on them, and collections of trained members",
    "bench": "training speed beside other ways to do it",
}

_NO_MEMORY = "the memory of this machine ran out; what is done is kept, the same command goes on"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that lacks a sign shows another, and is no fault
    with saying(), obeying() as asked:
        status = _run(list(sys.argv[1:] if arguments is None else arguments), asked)
        settle_output()
    return status


def _run(given: list[str], asked: Asked) -> int:
    from hopscope.errors import HopscopeError

    try:
        status = _called(given)
        sys.stdout.flush()  # a result that cannot be written is a fault, which Python would tell in its own way
    except HopscopeError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted; what is done is kept, the same command goes on", asked.exit_status)
    except BrokenPipeError:
        # The reader of our output has gone (such as `| head`): nothing is wrong, and there is nobody to tell.
        return 0
    except OSError as error:
        return _fail(
            f"{error.filename or 'system'}: {error.strerror}; what is done is kept, the same command goes on",
            2,
        )
    except MemoryError:
        return _fail(_NO_MEMORY, 2)
    except Exception as error:
        if str(error) == "can't start new thread":  # a RuntimeError of Python, whose stack found no room
            return _fail(_NO_MEMORY, 2)
        if os.environ.get("HOPSCOPE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        return _fail(f"{what}; a fault of Hopscope: please report it, with HOPSCOPE_TRACEBACK=1 set", 2)
    return status


def _called(given: list[str]) -> int:
    """Do what a command line asks for; returns the exit status."""
    if not given or given[0] in ("-h", "--help"):
        print(_usage())
        return 0 if given else 2
    if given[0] == "--version":
        from hopscope import __version__

        print(f"hopscope {__version__}")
        return 0
    if given[0] not in COMMANDS:
        return _fail(
            f"command: expected one of {', '.join(COMMANDS)}, found {given[0]!r}; see hopscope --help", 2
        )
    try:
        status: int = importlib.import_module(f"hopscope.cli.{given[0]}").main(given[1:])
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise
        return 0  # of the help, which is said
    return status


def _fail(message: str, status: int) -> int:
    print(f"hopscope: {' '.join(message.split())}", file=sys.stderr)
    return status


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {words}" for name, words in COMMANDS.items()]
    return "\n".join(
        [
            "usage: hopscope COMMAND [OPTIONS]",
            "",
            "Grow small transformers on in-context retrieval tasks and read out what they learned.",
            "",
            *lines,
            "",
            "hopscope COMMAND --help says more.  Exit status: 0 done, 2 something to mend, 75 time budget reached,",
            "130 interrupted (143 by SIGTERM, 129 by SIGHUP); after all but 0 and 2 the same command goes on.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
