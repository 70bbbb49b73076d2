"""The end of a run: evidence table, verdicts, figures, story and page."""

from collections.abc import Callable
from typing import Any

from hopscope.claims import Ledger, judge
from hopscope.claims.registration import deleted, noted, register
from hopscope.errors import UserError
from hopscope.report.record import read_ledger
from hopscope.runs import RunFolder, content_hash, seals
from hopscope.runs.evidence import Evidence, write_evidence
from hopscope.runs.files import is_file, listed, read_json
from hopscope.studies.loading import naming
from hopscope.studies.program import Program
from hopscope.studies.record import program_of

_CONCLUSIONS = ("metrics.parquet", "evidence.parquet", "claims.json", "story.json")
"""Files that `finish` writes and a command reads: one that was deleted is made anew."""

_REGISTRATION, _CONCLUSION = "registration.json", "conclusion.json"


def register_claims(
    run: RunFolder, program: Program, config: Any, say: Callable[[str], None] | None = None
) -> None:
    """Write down the rules of all claims before anything is trained; a run that has begun keeps what it has.

    Raises:
        UserError: the file cannot be written, was altered, or was deleted before the run was judged.
    """
    units = [unit.path / "unit.json" for unit in run.units]
    known = [run.path / name for name in (*_CONCLUSIONS, *program.gathered)]
    begun, path = any(map(is_file, [*units, *known])), run.path / _REGISTRATION
    if _registered(run) is not None:
        return
    if begun and path in seals.missing(run.path):
        found = f"{path}: expected the rules that were registered before training, found the file gone"
        if not is_file(run.path / "claims.json"):
            raise UserError(
                f"{found}: restore it from a copy, or move {run.path} away and run the same command again"
            )
        if say is not None:
            say(f"hopscope: warning: {found}: every claim will say so")
    if not begun:
        run.write_json(_REGISTRATION, register(program.claims(config)))


def finish(run: RunFolder, program: Program, config: Any, say: Callable[[str], None] | None = None) -> None:
    """Evidence, claims, figures, story and page of a run whose units are all done; then mark it done.

    Args:
        run: the run.
        program, config: its study and configuration.
        say: hears, in one line each, of drawings that were altered.

    Raises:
        UserError: a unit is not done; or a claim, a figure or the page asks for something that there is not; what was
            trained is kept.
    """
    from hopscope.report.page import build_report, render_all

    unfinished = [unit.hash for unit in run.units if not unit.is_done]
    if unfinished:
        raise UserError(
            f"{run.path}: expected every unit to be done before the run is judged, found {listed(unfinished)} "
            "unfinished; run the same command again"
        )

    with naming(program):
        write_evidence(run, program.measurements(run, config))
        evidence = Evidence.read(run)
        ledger = judged(run, program, config, evidence)
        run.write_json("claims.json", ledger.to_json())
        program.present(run, config, evidence, ledger)
    render_all(run.path, say)
    build_report([run.path], run.path / "report.html")
    run.write_json(_CONCLUSION, {"hash": _conclusion(program, config)})
    run.mark_done()


def judged(run: RunFolder, program: Program, config: Any, evidence: Evidence) -> Ledger:
    """Every claim with its verdict; verdicts under the registered rules are noted with the registration.

    Raises:
        UserError: a claim's value cannot be computed.
    """
    registered = _registered(run)
    ledger = Ledger([judge(claim, evidence, registered) for claim in program.claims(config)])
    if registered is None:
        return Ledger(deleted(ledger, _ledger_of_before(run)))
    run.write_json(_REGISTRATION, noted(registered, ledger))
    return ledger


def _registered(run: RunFolder) -> Any:
    """The rules that were registered before training; `None` where none were.

    Raises:
        UserError: they were altered.
    """
    path = run.path / _REGISTRATION
    if not is_file(path):
        return None
    return read_json(path, "restore it from a copy: what was registered before training cannot be made again")


def _ledger_of_before(run: RunFolder) -> Ledger:
    """The ledger that a run has, empty where there is none that can be read."""
    try:
        return read_ledger(run.path)
    except UserError:
        return Ledger()


def judge_again(run: RunFolder, damage: UserError, say: Callable[[str], None]) -> Ledger:
    """Make the ledger of a run again from its evidence, where the file is damaged or gone.

    Args:
        run: the run.
        damage: why its ledger cannot be read.
        say: is told, in one line, that it was made again.

    Raises:
        UserError: there is no evidence of a finished run to make it from, or its study cannot be loaded.
    """
    path = run.path / "claims.json"
    if not (is_file(run.path / "evidence.parquet") and (is_file(path) or run.is_done)):
        raise UserError(
            f"{run.path}: expected a finished run, found no claims.json that can be read and no evidence to make it "
            "from; run the same study again"
        ) from damage
    found = str(damage).removeprefix(f"{path}: ").partition(";")[0] if is_file(path) else "it was gone"
    with run.lock():
        program = program_of(run)
        with naming(program):
            ledger = judged(run, program, program.recorded(run), Evidence.read(run))
        run.write_json("claims.json", ledger.to_json())
    say(f"hopscope: {path}: made again from the evidence ({found})")
    return ledger


def concluded(program: Program, config: Any, run: RunFolder) -> bool:
    """Whether everything is there that `finish` writes, from the claims, figures and page as they are now.

    Drawings and the HTML page are left to `hopscope.report.page.mend_drawings`: they are made from the rest.
    """
    kinds = (".vl.json", ".csv")
    figures = [f"figures/{figure.name}{kind}" for figure in program.figures(config) for kind in kinds]
    if not all(is_file(run.path / name) for name in (*_CONCLUSIONS, *program.gathered, *figures)):
        return False
    path = run.path / _CONCLUSION
    return is_file(path) and run.read_json(_CONCLUSION) == {"hash": _conclusion(program, config)}


def _conclusion(program: Program, config: Any) -> str:
    return content_hash(program.conclusion(config))
