"""A made-up run of a declared study: two depths, three seeds of each, with a known value for every number."""

import math
from pathlib import Path

from hopscope.claims import Claim, Ledger, Samples, at_least, judge
from hopscope.figures import bars, curves, heads, numbered, write_figures
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.story.page import StudyFacts, render_page

SEEDS = (2, 3, 5)
LAYERS = (1, 2)
STEPS = (0, 7, 11, 13)
BATCH = 17
FLOORS = {"uniform guess": math.log(7), "copying": 1.0, "accuracy": {"chance": 1 / 7}}
DEPTH = "model.layers"

CONFIG = {
    "task": {"name": "Copy", "fields": {"length": 11, "values": 7, "back": 3}},
    "model": {"layers": 1, "heads": 2, "width": 32, "positions": None},
    "training": {"steps": 13, "batch_size": BATCH, "optimizer": "adam", "learning_rate": 0.001},
    "vary": {DEPTH: [1, 2]},
    "options": {"far": 5},
    "seeds": 3,
}
DOCSTRING = "Repeat a token.\n\n    Attributes:\n        length: of the input.\n"
FACTS = StudyFacts(
    name="copying",
    question="How many layers does it take to copy {1..3} places?",
    options={"far": 5},
    task={"name": "Copy", "docstring": DOCSTRING, "fields": CONFIG["task"]["fields"]},
    model=CONFIG["model"],
    training=CONFIG["training"],
    vary=CONFIG["vary"],
    seeds=3,
    floors=FLOORS,
    source="/somewhere/else/copying.py:study",
)  # fmt: skip
FIGURES = (curves("loss", by=DEPTH), bars("accuracy", by=DEPTH), heads("attention_to_source", by=DEPTH))


def label(layers):
    return f"layers {layers}"


def members(config=LAYERS):
    return [
        {
            "member": at * len(SEEDS) + n,
            "seed": seed,
            "configuration": label(layers),
            "overrides": {DEPTH: layers},
        }
        for at, layers in enumerate(config)
        for n, seed in enumerate(SEEDS)
    ]


def loss(member, step, learned=True):
    """From 2 down to 0.01, 0.02, … of member 0, 1, …; or 2 all the time."""
    last = 0.01 * (member + 1) if learned else 2.0
    return 2.0 + (last - 2.0) * step / STEPS[-1]


def accuracy(member, step, learned=True):
    """From 0 up to 0.987, 0.974, … of member 0, 1, …; or always 0.125."""
    return (1 - 0.013 * (member + 1)) * step / STEPS[-1] if learned else 0.125


def attention(member, layer, head):
    return 0.07 * member + 0.3 * layer + 0.1 * head


def rows(learned=True, diverged=(), config=LAYERS):
    """Training rows on both sides, and attention of every head; a diverged member breaks off after step 7."""
    for each in members(config):
        member, layers = each["member"], each["overrides"][DEPTH]
        for split in ("train", "held_out"):
            for step in STEPS:
                gone = member in diverged and step > 7
                for name, of in (("loss", loss), ("accuracy", accuracy)):
                    value = None if gone else of(member, step, learned)
                    yield Row(member, "training", name, value, split, step, step * BATCH)
        for layer in range(layers):
            for head in range(2):
                value = None if member in diverged else attention(member, layer, head)
                yield Row(member, "attention", "attention_to_source", value, step=13, layer=layer, head=head)


def evidence(learned=True, diverged=(), config=LAYERS):
    return Evidence.of(members(config), rows(learned, diverged, config), CONFIG)


CASES = {
    "learned": {},
    "nothing": {"learned": False},
    "one diverged": {"diverged": (4,)},
    "all of a depth diverged": {"diverged": (3, 4, 5)},
    "all diverged": {"diverged": range(6)},
}


def claims():
    return [
        Claim(
            id="C1",
            statement="One layer *copies* in every seed.",
            source="here",
            protocol="held-out accuracy",
            value=lambda found: found.last("accuracy", **{DEPTH: 1}),
            must=at_least(0.5, "fraction"),
            seeds_needed=3,
        ),
        Claim(
            id="C2",
            statement="Something else.",
            source="here",
            protocol="none",
            value=lambda found: Samples([], note="no seed was looked at"),
            must=at_least(0.5),
            rule="mean",
        ),
    ]


def run_folder(root: Path):
    fields = (
        {**each, "unit": str(each["overrides"][DEPTH]), "index": n % 3} for n, each in enumerate(members())
    )
    records = [{name: value for name, value in each.items() if name != "configuration"} for each in fields]
    return RunFolder.create(root, "copying", CONFIG, records, "smoke")


def written(root: Path, found: Evidence, template=None, facts=FACTS, figures=FIGURES, judged=None):
    """A run folder with everything that its page is built from, and the story."""
    run = run_folder(root)
    ledger = Ledger([judge(claim, found) for claim in claims()] if judged is None else judged)
    run.write_json("claims.json", ledger.to_json())
    write_figures(run, figures, found, facts.floors)
    story = render_page(template, facts, found, ledger, numbered(figures), run)
    run.write_json("story.json", story)
    return run, story


def texts(story):
    """All words of a story, with the numbers filled in."""
    lead = story.get("lead") or {}
    words = [story["title"], story["subtitle"], lead.get("text"), (lead.get("figure") or {}).get("caption")]
    for section in story["sections"]:
        words.append(section["heading"])
        for block in section["blocks"]:
            words += [str(block.get(name, "")) for name in ("text", "caption", "alt")]
            words += [str(cell) for row in block.get("rows", []) for cell in row]
    whole = "\n".join(filter(None, words))
    for name, number in story["numbers"].items():
        whole = whole.replace("{" + name + "}", number["text"])
    return whole
