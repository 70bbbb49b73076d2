"""The picture of every claim under every reading."""

from hopscope.claims import Claim, at_least
from hopscope.figures.verdict_grid import verdict_grid
from hopscope.runs.evidence import Evidence, Row

SEEDS = range(11)


def evidence():
    members = [{"member": seed, "seed": seed, "configuration": "one", "overrides": {}} for seed in SEEDS]
    rows = [Row(seed, "probes", "score", 0.7, step=13, samples=17) for seed in SEEDS]
    return Evidence.of(members, rows, {})


def claim(name, **readings):
    return Claim(
        id=name, statement="it scores", source="nowhere", protocol="every seed", must=at_least(0.5), rule="mean",
        readings={reading: lambda found, up=up: found.last("score") + up for reading, up in readings.items()},
    )  # fmt: skip


def test_each_claim_under_each_of_its_readings():
    claims = [claim("A", plain=0.0, strict=-0.4), claim("B", plain=0.1), claim("C", strict=-0.3, mild=0.2)]
    chart, rows = verdict_grid("grid", claims, evidence())
    assert [(row["claim"], row["reading"], row["verdict"], row["n"]) for row in rows] == [
        ("A", "plain", "reproduced", 11),
        ("A", "strict", "refuted", 11),
        ("C", "strict", "refuted", 11),
        ("C", "mild", "reproduced", 11),
    ]
    assert len({row["sign"] for row in rows}) == 2
    drawn = chart.to_dict()
    assert drawn["layer"][0]["encoding"]["y"]["sort"] == ["plain", "strict", "mild"]
    assert drawn["layer"][0]["encoding"]["x"]["sort"] == ["A", "C"]
