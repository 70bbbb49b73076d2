"""More readers: models, language models, campaigns, files of this machine, command lines."""

import contextlib
import io
import json
import shutil
from hashlib import sha256
from pathlib import Path

from fuzz_inputs import Pick, damaged_bytes, damaged_json, damaged_words
from fuzz_readers import ROOT, Reader, World, _module, archive_of, command


def more_readers(world: World) -> list[Reader]:
    """Readers that stand above the record of a run."""
    return [*_models(world), *_language(world), *_campaigns(world), *_machine(world), *_commands(world),
            _whole_runs(world)]  # fmt: skip


def _models(world: World) -> list[Reader]:
    import torch

    from hopscope.errors import UserError
    from hopscope.language.gpt2_folder import ORIGIN, WEIGHTS, read_folder, write_folder
    from hopscope.models.config import TransformerConfig
    from hopscope.models.export import export_module, load_module
    from hopscope.models.transformer import Transformer
    from hopscope.runs.checkpoints import load_checkpoint, save_checkpoint
    from hopscope.strict_json import parse_json

    shape = {"layers": 2, "heads": 3, "width": 21, "mlp_ratio": 0.0, "positions": "learned", "length": 11,
             "input_size": 13, "output_size": 5, "readout": (3, 7), "init": "encoder"}  # fmt: skip
    member = Transformer.initial(TransformerConfig(**shape), torch.tensor([5])).member(0)
    export, folder = world.folder / "export", world.folder / "language model"
    export_module(member, export, {"step": 8})
    speaker = TransformerConfig(**{**shape, "output_size": 13})
    said = Transformer.initial(speaker, torch.tensor([5])).member(0)
    write_folder(said, tuple(map(str, range(13))), folder, {"step": 8})
    arrays, metadata = load_checkpoint(export / "model.safetensors")
    described = {"metadata": metadata, "shapes": {name: list(array.shape) for name, array in arrays.items()}}

    def resealed(content: bytes) -> None:
        """Weights of other names and shapes whose checksums are right."""
        try:
            value = parse_json(content)
            shapes, told = value["shapes"], {"step": 8, **value["metadata"]}
            made = {
                str(name): torch.zeros([min(int(size), 23) for size in size_of][:4]).numpy()
                for name, size_of in shapes.items()
            }
            path = world.folder / "resealed.safetensors"
            save_checkpoint(path, made, told)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError):
            return  # nothing that can be written
        before = (export / "model.safetensors").read_bytes()
        (export / "model.safetensors").write_bytes(path.read_bytes())
        try:
            load_module(export)
        finally:
            (export / "model.safetensors").write_bytes(before)

    return [
        world.json("config.json of an export", export / "config.json", lambda: load_module(export)),
        world.bytes("weights of an export", export / "model.safetensors", lambda: load_module(export)),
        Reader("weights, sealed again", damaged_json([described]), resealed, (UserError,), 0.5),
        world.json("language model's record", folder / ORIGIN, lambda: read_folder(folder)),
        world.bytes("language model's weights", folder / WEIGHTS, lambda: read_folder(folder)),
    ]  # fmt: skip


ASKED = {
    "formulation": "equations", "depth": 3, "chains": 2, "seed": 7, "acceptable": ["0", "1"],
    "alternatives": [{"answer": "0", "chain": 1, "lost": [1, 2, 3]}],
    "symbols": [["z", "x", "v", "1"], ["y", "w", "u", "0"]], "chain": 0,
}  # fmt: skip
SCORED = {
    "answer": "1", "stuck": False,
    "attempts": [{"text": "hm", "acceptable": None}, {"text": "x", "acceptable": None},
                 {"text": "0", "acceptable": "0"}],
}  # fmt: skip
TEXT = "The cat sees a dog. A dog has bones! Bones lie in the garden, where the cat sleeps. " * 3


def _language(world: World) -> list[Reader]:
    from hopscope.errors import UserError
    from hopscope.language.corpus.file import read_counts
    from hopscope.language.heads.passages import read_passages
    from hopscope.language.questions.answers import Answers, read_answers, row, tallies
    from hopscope.language.questions.sets import question_set
    from hopscope.runs import RunFolder
    from hopscope.strict_json import parse_json

    found = row("q0", "m", 1, ASKED, SCORED)
    answers = Answers(schema_version=1, rows=(found,), cells=tuple(tallies([found])))
    passage = json.loads((ROOT / "docs" / "examples" / "llama.json").read_text(encoding="utf-8"))
    counts = {
        "file": "two.txt",
        "histogram": {"new": 3, "repeated": 2, "1": 7, "2": 5, "3": 0, "unlinked": 11},
    }

    def sample(content: bytes) -> None:
        try:
            asked, scored = parse_json(content)
        except (ValueError, TypeError):
            return
        tallies([row("q0", "m", 1, asked, scored)])

    def questions(content: bytes) -> None:
        try:
            fields = parse_json(content)
        except ValueError:
            return
        if isinstance(fields, dict) and all(name.isidentifier() for name in fields):
            question_set(**fields).configs()

    wanted = {
        "formulations": ["equations"],
        "depths": "1,2,3",
        "chains": 4,
        "count": 5,
        "seed": 7,
        "held_out": 0.5,
    }
    inside = [[ASKED, SCORED]]
    text, record = world.folder / "text.txt", world.folder / "counts.json"
    return [
        world.json("answers.json", world.run / "llm/answers.json", lambda: read_answers(RunFolder(world.run)),
                   answers.model_dump(mode="json")),
        Reader("transcript's sample", damaged_json(inside), sample, (UserError,), 4.0),
        Reader("question set", damaged_json([wanted]), questions, (UserError,), 4.0),
        world.json("passage", world.folder / "passage.json", lambda: read_passages(world.folder / "passage.json"),
                   passage, [passage, passage]),
        world.bytes("corpus", text, lambda: read_counts(text), TEXT.encode()),
        world.json("counts of a corpus", record, lambda: read_counts(record), counts, weight=4.0),
    ]  # fmt: skip


def _campaigns(world: World) -> list[Reader]:
    background, packing = (_module(ROOT / "campaigns" / f"{name}.py") for name in ("background", "packing"))
    from hopscope.errors import UserError

    home = background.Home(world.folder / "home")
    model = {"reading": "small", "member": 3, "unit": "0123456789ab", "steps": 67, "batch": 8,
             "folder": "runs/emergence/0123456789ab/units/0123456789ab"}  # fmt: skip
    files = {
        "campaign.json": {
            "commit": "7" * 40,
            "queue": "q.json",
            "cores": 2,
            "results": str(world.folder / "results"),
        },
        "state.json": {
            "pid": 7,
            "paused": False,
            "workers": [{"unit": model["unit"], "pid": 11}],
            "failed": {"a": "b"},
        },
        "models.json": {"models": [model, {**model, "member": 5, "unit": "ba9876543210"}]},
    }
    home.path.mkdir()
    for name, value in files.items():
        (home.path / name).write_text(json.dumps(value), encoding="utf-8")
    # A checkpoint and a log, so that rates are read.
    (home.path / model["folder"] / "checkpoints").mkdir(parents=True)
    (home.path / model["folder"] / "checkpoints" / "step-000000013.safetensors").touch()
    (home.path / "logs").mkdir()
    log = home.path / "logs" / f"{model['unit']}.jsonl"

    def status() -> None:
        if not home.record():
            raise background.Refused("no campaign")  # as its command does
        with contextlib.redirect_stdout(io.StringIO()):
            background.status(home)

    documented = (background.Refused, UserError, OSError)  # as its command says in one line
    readers = []
    for name, value in files.items():
        made = world.json(f"campaign: {name}", home.path / name, status, value)
        readers.append(Reader(made.name, made.make, made.read, documented))
    line = json.dumps({"kind": "progress", "step": 13, "samples_per_second": 17.5}).encode() + b"\n"
    made = world.bytes("campaign: log", log, lambda: background._rate(log, 8), 3 * line)
    readers.append(made)

    pack = world.folder / "pack"
    content = archive_of(
        {"study/0123456789ab/config.json": b"{}", "study/0123456789ab/units/a/thinned.json": b"[]"}
    )
    pack.mkdir()

    def unpack(archive: bytes, provenance: bytes | None = None) -> None:
        (pack / "pack.tar.gz.0").write_bytes(archive)
        told = {"parts": ["pack.tar.gz.0"], "sha256": sha256(archive).hexdigest(), "bytes": len(archive)}
        (pack / "provenance.json").write_bytes(
            json.dumps(told).encode() if provenance is None else provenance
        )
        root = world.folder / "unpacked"
        before = set(world.folder.iterdir())
        try:
            packing.unpack(pack, root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
            assert set(world.folder.iterdir()) == before

    import gzip

    told = {"parts": ["pack.tar.gz.0"], "sha256": sha256(content).hexdigest(), "bytes": len(content)}
    plain = gzip.decompress(content)
    return [
        *readers,
        Reader("pack: archive", damaged_bytes([content]), unpack, documented),
        Reader("pack: entries", damaged_bytes([plain]), lambda tar: unpack(gzip.compress(tar, 1)), documented),
        Reader("pack: provenance", damaged_json([told]), lambda said: unpack(content, said), documented),
    ]  # fmt: skip


def _machine(world: World) -> list[Reader]:
    import os

    from hopscope.executors.costs import Costs, costs_file
    from hopscope.report import libraries

    os.environ["XDG_CACHE_HOME"] = str(world.folder / "cache")
    path = costs_file()
    assert world.folder in path.parents, path
    machine = Costs().machine.model_dump(mode="json")
    cost = {
        "study": "depth",
        "preset": "smoke",
        "seconds": 7.5,
        "reason": "",
        "training_only": False,
        "date": "2026-01-02",
    }
    kept = {
        "schema_version": 1,
        "machines": {"0123456789ab": {"machine": machine, "costs": {"ba9876543210": cost}}},
    }
    bundle = world.folder / "bundle.js"
    script = b"let charts = 7;"
    return [
        world.json("costs", path, lambda: Costs().damage, kept),
        world.bytes("kept script", bundle, lambda: _only(libraries._read(bundle), script.decode()),
                    libraries._digest(script).encode() + b"\n" + script),
    ]  # fmt: skip


def _only(found: str | None, right: str) -> None:
    assert found in (None, right), "another script than the one that was kept"


def _commands(world: World) -> list[Reader]:
    text = world.folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    run, out = str(world.run), str(world.folder / "out")
    quick = [
        ["theory", "--steps", "5", "--mask", "causal", "--order", "3,1,2", "--json"],
        [
            "questions",
            "--formulation",
            "equations",
            "--count",
            "2",
            "--depth",
            "3",
            "--chains",
            "4",
            "--seed",
            "7",
        ],
        ["corpus", str(text), "--json"],
        ["claims", run, "--long"],
        ["claims", str(world.folder / "runs"), "--json"],
        ["diagnose", run],
        ["export", run, "--member", "0", "--step", "8", "--to", out],
        ["studies", "--from", "none.py"],
    ]
    from hopscope.errors import UserError

    def run_fields(words: list[str]) -> None:
        """As `hopscope run` reads its command line, but nothing is trained."""
        from hopscope.cli.run import RunOptions
        from hopscope.cli.study_fields import study_fields
        from hopscope.studies import find_study

        program = find_study("depth")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            _, fields = study_fields(RunOptions(), program, "smoke", words[1:], "run depth")
            program.configured("smoke", fields)

    asked = ["", "--layers", "1", "2", "--width", "8", "--training-steps", "12", "--batch-size", "8", "--learning-rate",
             "0.01", "--checkpoint-every", "6", "--device", "cpu", "--seeds", "2"]  # fmt: skip
    return [
        Reader("command lines", damaged_words(quick), command, (), 0.1),
        Reader("fields of `run`", damaged_words([asked]), run_fields, (UserError,), 0.02),
    ]  # fmt: skip


def _whole_runs(world: World) -> Reader:
    """Commands that read a run of which one file is damaged."""
    whole = world.folder / "whole"
    here = whole / "runs" / world.run.parent.name / world.run.name
    kinds = ["*.json", "*.parquet", "units/*/*.json", "units/*/metrics/*", "units/*/analysis/*",
             "units/*/checkpoints/*8.*",             "figures/*.vl.json", "figures/*.csv"]  # fmt: skip
    names = [path.relative_to(world.run) for kind in kinds for path in sorted(world.run.glob(kind))]
    contents = {name: (world.run / name).read_bytes() for name in names}
    jsons = {name: damaged_json([json.loads(contents[name])]) for name in names if name.suffix == ".json"}
    lines = [
        ["claims", str(here), "--long"], ["claims", str(here), "--json"], ["diagnose", str(here)], ["page"],
        ["export", str(here), "--member", "0", "--to", str(whole / "export")], ["claims", str(whole / "runs")],
    ]  # fmt: skip

    def make(pick: Pick) -> tuple[Path, bytes, list[str]]:
        name = names[pick(len(names))]
        damaged = (jsons.get(name) or damaged_bytes([contents[name]]))(pick)
        return name, damaged, lines[pick(len(lines))]

    def read(given: tuple[Path, bytes, list[str]]) -> None:
        name, damaged, line = given
        shutil.rmtree(whole, ignore_errors=True)
        shutil.copytree(world.run, here, ignore=shutil.ignore_patterns("*.png", "*.svg", "*.html"))
        (here / name).write_bytes(damaged)
        if line == ["page"]:
            with contextlib.suppress(UserError):
                build_report([here], whole / "page.html")
        else:
            command(line)

    from hopscope.errors import UserError
    from hopscope.report.page import build_report

    return Reader("commands on a damaged run", make, read, (), 0.03)


__all__ = ["more_readers"]
