"""Small runs for the tests of pages: two configurations of three seeds, one of them diverged, a head that matters."""

import json
import math
from pathlib import Path

import pytest

from hopscope.claims import Claim, at_least, at_most
from hopscope.claims.judge import judge
from hopscope.claims.verdict import Ledger
from hopscope.page.figures import bars, curves
from hopscope.page.files import write_figures
from hopscope.runs import Evidence, Member, RunFolder
from hopscope.runs.checkpoint import save_checkpoint

CHROMIUM = Path("/usr/bin/chromium")
LAYERS, SEEDS, STEPS = (2, 3), (11, 13, 17), (0, 5, 7)
FLOORS = {"zero": 1.0, "position": 0.75}
QUESTION = "Do three layers learn what two do not?"
IDENTITY = {
    "task": {"name": "Chains", "fields": {"steps": 2, "vocabulary": 19}},
    "model": {"layers": 2, "heads": 1}, "training": {"steps": 7}, "options": {"depth": 5},
}  # fmt: skip


def config(**more):
    members = []
    for layers in LAYERS:
        own = {
            "configuration": f"{layers} layers",
            "overrides": {"model.layers": layers},
            "unit": f"u{layers}",
        }
        members += [Member(member=len(members) + at, seed=seed, **own) for at, seed in enumerate(SEEDS)]
    units = [
        {"name": f"u{layers}", "label": f"{layers} layers", "training": {"steps": 7}} for layers in LAYERS
    ]
    told = {"study": "layers", "question": QUESTION, "preset": "laptop", "identity": IDENTITY, "units": units}
    return {**told, "members": [each.model_dump(mode="json") for each in members], **more}


def rows(diverged=(5,)):
    """Losses fall to 0.08 × layers, and accuracies rise to a fifth of them; a diverged member has no numbers."""
    found = []
    for member in range(6):
        for step in STEPS:
            gone = member in diverged and step
            loss = (
                math.nan
                if gone
                else 1.25 - (1.25 - 0.08 * LAYERS[member // 3]) * step / 7 + 0.01 * (member % 3)
            )
            where = {"member": member, "step": step, "samples": 128 * step}
            found += [
                {**where, "metric": "loss", "split": split, "value": loss} for split in ("held_out", "train")
            ]
            found += [{**where, "metric": f"loss_step_{hop}", "value": loss * hop} for hop in (1, 2)]
            found += [
                {
                    **where,
                    "metric": "accuracy",
                    "value": math.nan if gone else 0.2 * step / 7 * LAYERS[member // 3],
                }
            ]
        for head in (0, 1):
            place = {"member": member, "step": 7, "measure": "ablation", "layer": 1, "head": head}
            found.append(
                {**place, "metric": "rise", "value": math.nan if member in diverged else float(head)}
            )
    return found


@pytest.fixture
def evidence():
    made = Evidence.of(rows(), config()["members"], config())
    made.config = {**config(), "floors": {f"{layers} layers": FLOORS for layers in LAYERS}}
    return made


ROWS = tuple(rows())


def claims():
    told = {"source": "Musat 2024, Figure 3", "protocol": "ten seeds of each"}
    deep = {"model.layers": 3}
    return [
        Claim(id="L1", statement="Every model ends below 0.5.", must=at_most(0.5),
              value=lambda table: table.last("loss"), **told),
        Claim(id="L2", statement="Three layers answer most.", must=at_least(0.9, "fraction"),
              value=lambda table: table.where(**deep).last("accuracy"), trust="The split.", **told),
        Claim(id="L3", statement="Their loss falls.", must={"low": at_most(0.4), "lower": at_most(0.1)}, rule="mean",
              readings={"as stated": lambda table: dict.fromkeys(("low", "lower"), table.where(**deep).last("loss"))},
              value=None, **told),
    ]  # fmt: skip


@pytest.fixture
def make(tmp_path):
    """A function that makes a finished run: `figures`, `claims`, a `template`, fields of `config`, other `rows`."""

    def made(
        name="0123456789ab", *, figures=None, claims=(), template=None, about=(), rows=ROWS, arrays=(), **more
    ):
        told = config(**more)
        run = RunFolder(tmp_path / told["study"] / name).create(told)
        table = Evidence.of(rows, told["members"], told)
        table.write(run.path / "evidence.parquet")
        for file, content in dict(arrays).items():
            (run.path / file).parent.mkdir(parents=True, exist_ok=True)
            save_checkpoint(run.path / file, content, {})
        run.write("claims.json", Ledger(judge(each, table) for each in claims).to_json())
        floors = {f"{layers} layers": FLOORS for layers in LAYERS}
        about = {
            "floors": floors,
            "docstring": "Chains of hops.\n\nAttributes:\n    steps: how many.",
            **dict(about),
        }
        about |= {"template": ("own.md.j2", template)} if template is not None else {}
        run.write("page.json", json.dumps(about))
        table = Evidence.read(run)
        table.config = {**told, "floors": floors}
        write_figures(
            run, [curves("loss", by="model.layers"), bars("accuracy")] if figures is None else figures, table
        )
        return run

    return made


@pytest.fixture(scope="session")
def chromium():
    """A browser that needs no network."""
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as play:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
        ]
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, tmp_path):
    """Opens a page's text and waits until all of it is there; no request, message or error may come of it."""
    told = []

    def opened(text, width=1280, scheme="light", at=""):
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: told.append(request.url) if request.url[:4] == "http" else None)
        page.goto(file.as_uri() + at)
        page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=60_000)
        return page

    yield opened
    assert not told
