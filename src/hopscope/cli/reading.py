"""Commands that read runs: `hopscope claims`, `report`, `circuit` and `export`."""

from collections.abc import Iterator
from json import dumps, loads
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from hopscope.claims import Ledger
from hopscope.cli.parsing import console, show_table, stage
from hopscope.errors import UserError
from hopscope.runs import RunFolder, runs_in, write_atomic

if TYPE_CHECKING:
    from hopscope.circuits.reader import Reading

_MODES = ("rules", "clean", "recomputed")


def claims(
    paths: Positional[tuple[Path, ...]] = (Path("runs"),), long: bool = False, json: bool = False
) -> None:
    """Print the ledger of runs: every claim with its value and verdict.  Of a root with several runs, list them.

    Joint verdicts of runs under several completions come last.

    A refuted claim is a result, not a failure; a run that cannot be read comes last.

    Args:
        paths: Run folders, or roots that hold runs.
        long: Print threshold, interval, n and the reason of every verdict too.
        json: Print JSON.
    """
    runs = [run for path in paths for run in runs_in(path)]
    entries, fault = list[dict[str, Any]](), None
    screen, listing, read = console(), len(runs) > len(paths) and not long, list[Ledger]()
    for run in runs:
        ledger, outcome = None, "not finished: run the same study again"
        try:
            run.config  # noqa: B018 - without which a run cannot be read
            if run.is_concluded:
                ledger = Ledger.from_json(run.read("claims.json"), str(run.path / "claims.json"))
                read.append(ledger)
                outcome = ledger.closing_line
        except UserError as error:
            fault, outcome = fault or error, "cannot be read"
        if json:
            where = {"run": str(run.path)} if len(runs) > 1 else {}
            entries += [{**each.to_json(), **where} for each in ledger or ()]
        elif listing or outcome != "cannot be read":
            print(f"{run.path.parent.name} {run.path}")
            text = f"  {outcome}" if listing or ledger is None else ledger.text(long=long, width=screen.width)
            screen.print(text, markup=False)
    if len(read) > 1 and not json and not listing:
        from hopscope.claims.judge import joined

        for name, judged in joined(read).items():
            screen.print(f"together: {name} {judged.verdict}: {judged.words}", markup=False)
    if json and (entries or fault is None):
        print(dumps(entries, indent=1, ensure_ascii=False))
    if fault is not None:
        raise fault


def report(paths: Positional[tuple[Path, ...]], index: bool = False, to: Path | None = None) -> None:
    """Build the page of a run anew, or one page of several runs.

    A run that was trained but not concluded (a claim or a figure had a fault) is judged and concluded first.

    Args:
        paths: Run folders, or roots that hold exactly one run.
        index: List all runs under the paths on one page, with links to their pages, instead of building those.
        to: File to write; by default report.html in the run folder (of several runs, here), or index.html.
    """
    if not paths:
        found = "found none; name a run folder; see hopscope report --help"
        raise UserError(f"report: expected at least one PATH, {found}")
    from hopscope import api
    from hopscope.page import page

    if to is not None and to.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"to: expected the name of an HTML file, found {to}; write one that ends in .html")
    if index:
        file = to or (paths[0] if len(paths) == 1 else Path()) / "index.html"
        text = page.index([run for path in paths for run in runs_in(path)], file.parent)
    else:
        runs = [RunFolder.opened(path) for path in paths]
        for run in runs:
            api.conclude_again(run)
        text, file = page.page(*runs), to or (runs[0].path if len(runs) == 1 else Path()) / "report.html"
    if to is None and not index and len(paths) == 1:
        with runs[0].locked():
            runs[0].write("report.html", text)
    else:
        write_atomic(file, text.encode())
    print(file)


def circuit(
    path: Positional[Path],
    member: int = 0,
    checkpoint: int | None = None,
    tau: float | None = None,
    proof: Literal["both", "rules"] = "both",
    json: bool = False,
) -> None:
    """Read the circuit of one trained member: which rows of which heads read what, proven by ablation.

    A model without one is a result, not a failure.

    Args:
        path: Run folder, or a root that holds exactly one run.
        member: Number of the member in the run.
        checkpoint: Read the circuit as it was at this training step, of which there must be a checkpoint; by default
            the last.
        tau: Loss that the circuit may have; by default that of the task's criterion.
        proof: How the circuit is proven: both, by its rules and by its own attention recomputed; rules, by its rules
            alone, as in the paper, where heads that only shape later attention do not count.
        json: Print JSON.
    """
    from hopscope import api
    from hopscope.training.train import arithmetic

    if tau is not None and not 0.0 <= tau < inf:
        raise UserError(f"tau: expected a loss from 0, found {tau}")
    run = api.open_run(path)
    # Passes are many and small: more threads mostly wait for each other.
    with stage() as tell, arithmetic(threads=1):
        reading = run.circuit(member, checkpoint, tell, threshold=tau, proof=proof)
    if json:
        about = {"member": member, "checkpoint": checkpoint}
        # JSON knows no infinite numbers.
        found = loads(reading.model_dump_json(), parse_constant=lambda _: None)
        print(dumps({**about, **found}, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(member, reading)


def _show(member: int, reading: "Reading") -> None:
    screen = console()
    screen.print(f"member {member}: {reading.verdict}", markup=False)
    if not reading.circuit.paths:
        return
    show_table(("head", "rows", "read", "attn.", "carries", "used by", *_MODES), _rows(reading))
    loss, random, beside = reading.loss, sorted(reading.random), ""
    if random:
        mean = sum(random) / len(random)
        beside = f"; random circuits of this size {mean:.3f} ({random[0]:.3f} to {random[-1]:.3f})"
    parts = "" if reading.learned == ("loss",) else f" over {', '.join(reading.learned)}"
    own = f", with its own attention {loss['recomputed']:.3f}" if "recomputed" in loss else ""
    screen.print(
        "\nLoss without the path: rules, every pattern is its rule; clean, this path alone changes; recomputed,\n"
        f"later attention follows.\nLoss{parts} (threshold {reading.threshold:.3f}): model {loss['full']:.3f}, "
        f"circuit by its rules {loss['rules']:.3f}{own}; everything but the circuit {loss['complement']:.3f}{beside}.",
        markup=False,
    )
    if len(reading.minimal) > 1:
        screen.print(f"{len(reading.minimal) - 1} other minimal circuits were found (--json prints them).")


def _rows(reading: "Reading") -> Iterator[list[str]]:
    for path, about in zip(reading.circuit.paths, reading.evidence, strict=True):
        carries = [name for name, rise in about.carries.items() if rise >= reading.least_effect]
        used = [f"{use.layer}.{use.head} {use.part}" if use.part else "readout" for use in about.composition]
        removed = [f"{about.removed[mode]:.3f}" if mode in about.removed else "–" for mode in _MODES]
        head, attention = f"{path.layer}.{path.head}", f"{about.mean_attention:.2f}"
        yield [head, path.query, path.read, attention, ", ".join(carries), ", ".join(used[:3]), *removed]


def export(path: Positional[Path], member: int, to: Path, checkpoint: int | None = None) -> None:
    """Write one trained member as a folder: GPT-2's layout for models on tokens that fit it, else a state dict.

    Args:
        path: Run folder, or a root that holds exactly one run.
        member: Number of the member in the run.
        to: Folder to write.
        checkpoint: Write the member as it was at this training step, of which there must be a checkpoint; by default
            the last.
    """
    from hopscope import api

    api.open_run(path).export(member, to, checkpoint)
    print(to)
