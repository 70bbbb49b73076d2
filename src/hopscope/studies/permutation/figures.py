"""The figures of the permutation study, as Vega-Lite specifications."""

from typing import Any

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url, write_figure
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence, curve
from hopscope.theory.posteriors import (
    blind_to_repeats_floor,
    elimination_floor,
    training_floor,
    unbound_repeats_floor,
)

WIDTH = 640
"""Width of a full figure, in pixels."""

SHOWN_SEEDS = 4
"""Seeds whose attention maps the page shows; all of them are in the analysis files."""

_UNIFORM, _TRAINING = "elimination floor", "training-mappings floor"
_NO_RECALL, _NO_BINDING = "repeats not noticed", "repeats noticed, not recalled"


def write_figures(run: RunFolder, config: PermutationStudyConfig, evidence: dict[str, Evidence]) -> None:
    """Write every figure of a run."""
    write_figure(run, "loss", _loss_chart(config, evidence), _loss_rows(run, config, evidence))
    write_figure(run, "skills", _skills_chart(evidence), _skill_rows(run, evidence))
    write_figure(run, "recall_by_slot", _slot_chart(evidence), _slot_rows(evidence))
    write_figure(run, "attention", _attention_chart(config), _attention_rows(run, config, evidence))


def floors(config: PermutationStudyConfig) -> dict[str, float]:
    """Loss of ideal observers, in nats.

    One holds all V! mappings equally likely, one knows which are used in training.  Where training has repeats of the
    presentation's kind, one more sees the values used but never that an x came back, and one sees that too but not
    which value stood beside it.
    """
    from hopscope.tasks.splits import MappingSplit

    split = MappingSplit(config.values, config.held_out_share, config.split_seed)
    found = {
        _UNIFORM: elimination_floor(config.values),
        _TRAINING: training_floor(config.values, split.training),
    }
    page_repeats = not config.repeat_slots and not config.repeat_sources
    if page_repeats and any(configuration.data == "repeats" for configuration in config.grid()):
        found[_NO_RECALL] = blind_to_repeats_floor(config.values, config.repeat_ratio)
        found[_NO_BINDING] = unbound_repeats_floor(config.values, config.repeat_ratio)
    return found


def _by_member(evidence: dict[str, Evidence]) -> dict[int, tuple[str, int]]:
    """Member → (configuration, seed)."""
    return {m: (e.name, s) for e in evidence.values() for m, s in zip(e.members, e.seeds, strict=True)}


def _loss_rows(
    run: RunFolder, config: PermutationStudyConfig, evidence: dict[str, Evidence]
) -> list[dict[str, Any]]:
    whose, columns = _by_member(evidence), curve(run, "train", "loss")
    rows = [
        {
            "kind": "loss",
            "configuration": name,
            "seed": seed,
            "samples": int(samples),
            "loss": round(float(value), 5),
        }
        for member, samples, value in zip(
            columns["member"], columns["samples"], columns["value"], strict=True
        )
        for name, seed in [whose[int(member)]]
    ]
    for name, value in floors(config).items():
        rows.append({"kind": name, "configuration": "", "seed": -1, "samples": 0, "loss": round(value, 5)})
    return rows


def _colour(evidence: dict[str, Evidence]) -> alt.Color:
    scale = alt.Scale(domain=list(evidence))  # colours are the page's, which any colour vision tells apart
    return alt.Color("configuration:N", scale=scale, legend=alt.Legend(title=None, orient="top"))


def _loss_chart(config: PermutationStudyConfig, evidence: dict[str, Evidence]) -> alt.TopLevelMixin:
    types = {
        "samples": "number",
        "loss": "number",
        "seed": "number",
        "configuration": "string",
        "kind": "string",
    }
    low = min(floors(config).values()) - 0.02
    samples = alt.X("samples:Q", title="training samples per seed", axis=alt.Axis(format="~s"))
    loss = alt.Y("loss:Q", title="training loss (nats per answer)", scale=alt.Scale(domain=[low, low + 0.35]))
    lines = (
        alt.Chart()
        .transform_filter("datum.kind == 'loss'")
        .mark_line(clip=True, strokeWidth=1.3, opacity=0.8)
        .encode(x=samples, y=loss, color=_colour(evidence), detail="seed:N",
                tooltip=["configuration:N", "seed:N", "samples:Q", "loss:Q"])
    )  # fmt: skip
    rule = alt.Chart().transform_filter("datum.kind != 'loss'").mark_rule(strokeDash=[5, 4], color="#555")
    label = (
        alt.Chart()
        .transform_filter("datum.kind != 'loss'")
        .mark_text(align="right", baseline="top", dx=-4, dy=4, color="#444")
        .encode(y=loss, x=alt.value(WIDTH), text="label:N")
        .transform_calculate(label="datum.kind + ' ' + format(datum.loss, '.4f')")
    )
    layers = alt.layer(lines, rule.encode(y=loss), label, data=data_url("loss", types))
    return layers.properties(width=WIDTH, height=320)


def _skill_rows(run: RunFolder, evidence: dict[str, Evidence]) -> list[dict[str, Any]]:
    whose, rows = _by_member(evidence), []
    for skill in ("elimination", "recall"):
        columns = curve(run, "held_out", skill)
        for member, samples, value in zip(
            columns["member"], columns["samples"], columns["value"], strict=True
        ):
            name, seed = whose[int(member)]
            rows.append(
                {"configuration": name, "skill": skill, "seed": seed, "samples": int(samples),
                 "accuracy": round(float(value), 5)}
            )  # fmt: skip
    return rows


def _skills_chart(evidence: dict[str, Evidence]) -> alt.FacetChart:
    types = {
        "samples": "number",
        "accuracy": "number",
        "seed": "number",
        "configuration": "string",
        "skill": "string",
    }
    colour = alt.Color(
        "skill:N",
        scale=alt.Scale(domain=["elimination", "recall"]),
        legend=alt.Legend(title=None, orient="top"),
    )
    lines = (
        alt.Chart()
        .mark_line(strokeWidth=1.4, opacity=0.75)
        .encode(
            x=alt.X("samples:Q", title="training samples per seed", axis=alt.Axis(format="~s", tickCount=5)),
            y=alt.Y("accuracy:Q", title="held-out accuracy", axis=alt.Axis(format="%"),
                    scale=alt.Scale(domain=[0, 1])),
            color=colour,
            strokeDash=alt.StrokeDash("skill:N", legend=None),
            detail="seed:N",
            tooltip=["configuration:N", "skill:N", "seed:N", "samples:Q", "accuracy:Q"],
        )
        .properties(width=300, height=230)
    )  # fmt: skip
    facet = alt.Facet("configuration:N", title=None, sort=list(evidence))
    return alt.layer(lines, data=data_url("skills", types)).facet(facet=facet, columns=2)


def _slot_rows(evidence: dict[str, Evidence]) -> list[dict[str, Any]]:
    return [
        {"configuration": found.name, "seed": seed, "slot": f"x{slot + 1}", "recall": round(recall, 5)}
        for found in evidence.values()
        for seed, recalls in zip(found.seeds, found.probes["recall_by_slot"], strict=True)
        for slot, recall in enumerate(recalls)
        if recall is not None
    ]


def _slot_chart(evidence: dict[str, Evidence]) -> alt.FacetChart:
    types = {"configuration": "string", "seed": "number", "slot": "string", "recall": "number"}
    points = (
        alt.Chart()
        .mark_point(filled=True, size=60, opacity=0.75)
        .encode(
            x=alt.X("slot:N", title="which x came back", axis=alt.Axis(labelAngle=0)),
            xOffset="seed:N",
            y=alt.Y("recall:Q", title="recall (held-out repeats)", axis=alt.Axis(format="%"),
                    scale=alt.Scale(domain=[0, 1])),
            color=_colour(evidence),
            tooltip=["configuration:N", "seed:N", "slot:N", "recall:Q"],
        )
        .properties(width=300, height=200)
    )  # fmt: skip
    facet = alt.Facet("configuration:N", title=None, sort=list(evidence))
    return alt.layer(points, data=data_url("recall_by_slot", types)).facet(facet=facet, columns=2)


def token_names(config: PermutationStudyConfig) -> list[str]:
    """x1, y1, …, the words for the positions of the input."""
    return [f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(2 * config.values - 1)]


def _attention_rows(
    run: RunFolder, config: PermutationStudyConfig, evidence: dict[str, Evidence]
) -> list[dict[str, Any]]:
    names, rows = token_names(config), []
    for found in evidence.values():
        steps = config.training(found.configuration).steps
        for member, seed in list(zip(found.members, found.seeds, strict=True))[:SHOWN_SEEDS]:
            record = run.members[member]
            patterns = run.unit(record.unit).read_analysis("patterns", steps)
            for which, array in patterns.items():
                of_member = array[record.index]
                for layer, head, query, key in ((*i,) for i in _lower_triangle(of_member.shape)):
                    rows.append(
                        {
                            "map": f"{found.name} · head {head + 1}",
                            "seed": f"seed {seed}",
                            "sequences": _sequence_words(which),
                            "query": names[query],
                            "key": names[key],
                            "attention": round(float(of_member[layer, head, query, key]), 4),
                        }
                    )
    return rows


def _lower_triangle(shape: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Entries that a causal row can see; the rest of each map is empty by construction."""
    layers, heads, queries, _ = shape
    return [
        (la, h, q, k)
        for la in range(layers)
        for h in range(heads)
        for q in range(queries)
        for k in range(q + 1)
    ]


def _sequence_words(which: str) -> str:
    if which == "plain":
        return "no repeat"
    return f"a later x repeats x{which.rsplit('_', 1)[1]}"


def _attention_chart(config: PermutationStudyConfig) -> alt.FacetChart:
    types = {"map": "string", "seed": "string", "sequences": "string", "query": "string", "key": "string",
             "attention": "number"}  # fmt: skip
    repeated = sorted({source for _, source in config.task(config.grid()[0]).repeat_pairs()})
    options = [_sequence_words("plain"), *[_sequence_words(f"repeat_of_{source}") for source in repeated]]
    shown = alt.param(
        name="sequences_shown", value=options[0], bind=alt.binding_select(options=options, name="Sequences: ")
    )
    cells = (
        alt.Chart()
        .mark_rect()
        .encode(
            x=alt.X("key:N", sort=None, title="key (is read)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("query:N", sort=None, title="query (reads)"),
            color=alt.Color("attention:Q", scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                            legend=alt.Legend(title="attention")),
            tooltip=["map:N", "seed:N", "query:N", "key:N", "attention:Q"],
        )
        .properties(width=170, height=170)
    )  # fmt: skip
    return (
        alt.layer(cells, data=data_url("attention", types))
        .facet(
            row=alt.Row("seed:N", title=None),
            column=alt.Column("map:N", title=None, sort=None),
        )
        .transform_filter("datum.sequences == sequences_shown")
        .add_params(shown)
    )
