"""The end of a run: evidence table, verdicts, figures, story and page."""

from collections.abc import Iterator
from typing import Any

from hopscope.claims import Ledger, judge
from hopscope.claims.registration import noted, register
from hopscope.runs import RunFolder, content_hash
from hopscope.runs.evidence import Evidence, Row, write_evidence
from hopscope.runs.files import is_file
from hopscope.studies.base import Gathering, Program
from hopscope.studies.declared import DeclaredStudy
from hopscope.studies.loading import naming

_CONCLUSIONS = ("metrics.parquet", "evidence.parquet", "claims.json", "story.json", "report.html")
"""What `finish` writes and a command reads: one that was deleted is made anew."""

_REGISTRATION, _CONCLUSION = "registration.json", "conclusion.json"


def register_claims(run: RunFolder, program: Program, config: Any) -> None:
    """Write down the rules of all claims before anything is trained; a run that has begun keeps what it has.

    Raises:
        UserError: the file cannot be written.
    """
    units = [unit.path / "unit.json" for unit in run.units]
    gathered = program.gathered if isinstance(program, Gathering) else ()
    known = [run.path / name for name in (*_CONCLUSIONS, *gathered)]
    begun = any(map(is_file, [*units, *known]))
    if not begun and not is_file(run.path / _REGISTRATION):
        run.write_json(_REGISTRATION, register(program.claims(config)))


def finish(run: RunFolder, program: Program, config: Any) -> None:
    """Evidence, claims, figures, story and page of a run whose units are all done; then mark it done.

    Raises:
        UserError: a claim, a figure or the page asks for something that there is not; what was trained is kept.
    """
    from hopscope.report.page import build_report
    from hopscope.report.pictures import render_all

    with naming(program):
        write_evidence(run, _measurements(program, run, config))
        evidence = Evidence.read(run)
        ledger = judged(run, program, config, evidence)
        run.write_json("claims.json", [claim.to_json() for claim in ledger])
        program.present(run, config, evidence, ledger)
    render_all(run.path)
    build_report([run.path], run.path / "report.html")
    if isinstance(program, DeclaredStudy):
        run.write_json(_CONCLUSION, {"hash": _conclusion(program, config)})
    run.mark_done()


def _measurements(program: Program, run: RunFolder, config: Any) -> Iterator[Row]:
    """What a program measured; it is not asked before the first row is."""
    yield from program.measurements(run, config)


def judged(run: RunFolder, program: Program, config: Any, evidence: Evidence) -> Ledger:
    """Every claim with its verdict; verdicts under the registered rules are noted with the registration.

    Raises:
        UserError: a claim's value cannot be computed.
    """
    registered = run.read_json(_REGISTRATION) if is_file(run.path / _REGISTRATION) else None
    ledger = Ledger([judge(claim, evidence, registered) for claim in program.claims(config)])
    if registered is not None:
        run.write_json(_REGISTRATION, noted(registered, ledger))
    return ledger


def concluded(program: Program, config: Any, run: RunFolder) -> bool:
    """Whether everything is there that `finish` writes, from the claims, figures and page as they are now."""
    kinds = (".vl.json", ".csv", ".svg", ".png")
    figures = [f"figures/{figure.name}{kind}" for figure in program.figures(config) for kind in kinds]
    gathered = program.gathered if isinstance(program, Gathering) else ()
    if not all(is_file(run.path / name) for name in (*_CONCLUSIONS, *gathered, *figures)):
        return False
    if not isinstance(program, DeclaredStudy):
        return True
    path = run.path / _CONCLUSION
    return is_file(path) and run.read_json(_CONCLUSION) == {"hash": _conclusion(program, config)}


def _conclusion(program: DeclaredStudy, config: Any) -> str:
    return content_hash(program.conclusion(config))
