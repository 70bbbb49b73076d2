"""The command `hopscope circuit`: read a member's circuit."""

import dataclasses
import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import Positional

from hopscope.circuits.config import Proof
from hopscope.cli.parsing import parse
from hopscope.cli.terminal import console, progress
from hopscope.runs import find_run

if TYPE_CHECKING:
    from rich.table import Table


@dataclasses.dataclass
class Options:
    """Read the circuit of one trained member: which rows of which heads read what, proven by ablation."""

    path: Positional[Path]
    """Run folder, or a root that holds exactly one run."""
    member: int | None = None
    """Number of the member in the run (members.json; default: the first)."""
    step: Annotated[int | None, tyro.conf.arg(aliases=["--checkpoint"])] = None
    """Read the circuit as it was at this training step, of which there must be a checkpoint (default: the last)."""
    tau: float | None = None
    """Loss that the circuit may have (default: 0.05, or 1.5 times that of the model if that is more; of a permutation
    model 0.02 nats more than its own, of a language model with N chains 0.05 ln N nats more; of a task of your own a
    twentieth of its lowest floor in place of 0.05)."""
    proof: Proof = "both"
    """What the circuit must hold under: both, its rules and its own attention recomputed; rules, its rules alone, as in
    the paper, which counts no head that only shapes what later heads attend to."""
    bounds: bool = False
    """Print what each path costs, beside the cost of the same rows in heads outside of the circuit and in its layer."""
    again: int = 0
    """Read the member so many times more, on other sequences and in other orders, and print how far the circuits that
    were found are apart."""
    circuit_of: int | None = None
    """Run the circuit of this other member in the one that is named, and print what it reaches there."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; a model without a circuit is a result, not a failure."""
    options = parse(Options, arguments, "circuit")
    run = find_run(options.path)
    from hopscope.opened import Run
    from hopscope.training.threads import prepare

    prepare(threads=1)  # the passes are many and small: more threads mostly wait for each other
    member = run.members[0].member if options.member is None else options.member
    opened = Run(run.path)
    with progress() as tell:
        how: Any = {"threshold": options.tau, "proof": options.proof, "progress": tell}
        found = dict(opened.circuit(member, options.step, **how).record)
        bounds = opened.path_bounds(member, options.step, **how) if options.bounds and found["paths"] else []
        if options.again:
            apart = opened.reread(member, options.again, options.step, **how)
            found["reread"] = apart and apart._asdict()
        if options.circuit_of is not None:
            other = opened.circuit(options.circuit_of, options.step, **how).circuit
            reached = dataclasses.asdict(opened.transferred(member, other, options.step))
            found["transferred"] = {"circuit_of": options.circuit_of, "loss": reached}
    if bounds:
        found["bounds"] = [
            {"removed": each.removed, "others": list(each.others), "layer": each.layer} for each in bounds
        ]
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    screen = console()
    screen.print(
        f"member {found['member']}, step {found['checkpoint']:,}: {found['verdict']}", highlight=False
    )
    if not found["paths"]:
        return
    screen.print(_table(found["paths"]))
    screen.print(
        "\nLoss without the path: rules, every pattern is its rule; clean, this path alone changes; recomp., later "
        "attention follows.",
        highlight=False,
    )
    loss = found["loss"]
    low, high = loss["random_circuits_range"]
    parts = "" if found["learned"] == ["loss"] else f" over {', '.join(found['learned'])}"
    screen.print(
        f"Loss{parts} (threshold {found['threshold']:.3f}): model {loss['full']:.3f}, "
        f"circuit by its rules {loss['rules']:.3f}, with its own attention {loss['recomputed']:.3f}; "
        f"everything but the circuit {loss['complement']:.3f}; random circuits of this size "
        f"{loss['random_circuits']:.3f} ({low:.3f} to {high:.3f}).",
        highlight=False,
    )
    if "bounds" in found:
        screen.print(_bounds(found))
        screen.print(
            "\nLoss of the model where the rows of a path read uniformly: in its head; in heads outside of the circuit "
            "(median and largest); in all heads of its layer.",
            highlight=False,
        )
    if found.get("reread"):
        apart = found["reread"]
        screen.print(
            f"{apart['readings']} readings, distance between two of them: by paths {apart['by_paths']:.2f}, by whole "
            f"circuits {apart['whole']:.2f} (0: the same; 1: nothing in common).",
            highlight=False,
        )
    if "transferred" in found:
        reached = found["transferred"]["loss"]
        screen.print(
            f"The circuit of member {found['transferred']['circuit_of']} in this model: by its rules "
            f"{reached['rules']:.3f}, with its own attention {reached['recomputed']:.3f}.",
            highlight=False,
        )
    others = len(found["minimal_circuits"]) - 1
    if others:
        screen.print(f"{others} other minimal circuits were found (--json prints them).", highlight=False)


def _table(paths: list[dict[str, Any]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    table.add_column("head", no_wrap=True)
    for column in ("rows", "read, by rule", "attn.", "carries", "used by"):
        table.add_column(column, overflow="fold")
    for column in ("rules", "clean", "recomp."):
        table.add_column(column, justify="right", no_wrap=True)
    for path in paths:
        table.add_row(
            f"{path['layer']}.{path['head']}",
            path["query_role"],
            ", ".join(filter(None, [path["target_role"], path["rule"]])),
            f"{path['mean_attention']:.2f}",
            ", ".join(path["carries"]),
            ", ".join(map(_use, path["composition"][:3])),
            *(f"{path['loss_if_removed'][mode]:.3f}" for mode in ("rules", "clean", "recomputed")),
        )
    return table


def _bounds(found: dict[str, Any]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in ("head", "rows"):
        table.add_column(column, overflow="fold")
    for column in ("removed", "others", "largest", "layer"):
        table.add_column(column, justify="right", no_wrap=True)
    for path, each in zip(found["paths"], found["bounds"], strict=True):
        known = (
            [f"{median(each['others']):.3f}", f"{max(each['others']):.3f}"] if each["others"] else ["–", "–"]
        )
        table.add_row(
            f"{path['layer']}.{path['head']}",
            path["query_role"],
            f"{each['removed']:.3f}",
            *known,
            f"{each['layer']:.3f}",
        )
    return table


def _use(use: dict[str, Any]) -> str:
    if use["reader"] == "readout":
        return "readout"
    return f"{use['reader']['layer']}.{use['reader']['head']} {use['part']}"
