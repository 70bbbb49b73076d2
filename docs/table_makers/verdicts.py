"""Tables of claims, of what they stand on, and of stories."""

import re
from itertools import permutations
from typing import Any

from hopscope.claims import JudgedClaim
from hopscope.claims.wording import verdict_words
from table_makers.common import RESULTS, estimates, markdown, read_json

_NUMBER = re.compile(r"\{(n\d+)\}")
_SCALE = re.compile(r"below the protocol's scale(?:: (?P<lacks>[^;]*))?; ")


def verdicts(run: str) -> str:
    """Every claim of a run that was run, and under the table once what it lacks of the protocol's scale."""
    # Runs of before a claim was one record have its words in the story.
    told = read_json(RESULTS / run / "story.json")["claims"]
    claims = [claim for claim in read_json(RESULTS / run / "claims.json") if claim["verdict"] != "not run"]
    words = {
        claim["id"]: claim["words"] if "words" in claim else told[claim["id"]]["words"] for claim in claims
    }
    rows = [
        [
            claim["id"],
            claim["statement"],
            estimates(claim["value"], claim["interval"]),
            str(claim["n"]),
            verdict_words(JudgedClaim.model_validate(claim)),
            _SCALE.sub("", words[claim["id"]]),
        ]
        for claim in claims
    ]
    table = markdown(["claim", "statement", "value [95 % interval]", "n", "verdict", "in words"], rows)
    return table + _below_scale(words)


def _below_scale(words: dict[str, str]) -> str:
    """What a run lacks of the scale of which claims."""
    lacking: dict[str, list[str]] = {}
    for claim, said in words.items():
        for lacks in dict.fromkeys(_SCALE.findall(said)):
            if lacks:
                lacking.setdefault(lacks, []).append(claim)
    said = " ".join(f"{', '.join(claims)}: {lacks}." for lacks, claims in lacking.items())
    return f"\n*Below the protocol's scale. {said}*\n" if said else ""


def judged_anew(run: str) -> str:
    """Every claim of a run as it was judged then, and by the rules of now from the same evidence table."""
    from hopscope.claims import judge
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.record import program_of

    folder = RunFolder.open(RESULTS / run)
    program, evidence = program_of(folder), Evidence.read(folder)
    then = {claim["id"]: claim["verdict"] for claim in read_json(RESULTS / run / "claims.json")}
    rows = []
    for claim in program.claims(program.recorded(folder)):
        now = judge(claim, evidence).to_json()
        here = "not run" if now["here"] is None else now["here"]["verdict"]
        values = estimates(now["value"], now["interval"])
        rows.append(
            [
                now["id"],
                now["statement"],
                values,
                str(now["n"]),
                then.get(now["id"], "–"),
                now["verdict"],
                here,
            ]
        )
    head = [
        "claim",
        "statement",
        "value [95 % interval]",
        "n",
        "verdict then",
        "verdict now",
        "in this run alone",
    ]
    return markdown(head, rows)


def story(run: str, section: str, number: str) -> str:
    """A table of a run's page: its numbers come from the run's files, which the page names one by one."""
    told = read_json(RESULTS / run / "story.json")
    (found,) = [each for each in told["sections"] if each["id"] == section]
    table = [block for block in found["blocks"] if block["kind"] == "table"][int(number)]

    def filled_in(words: str) -> str:
        return _NUMBER.sub(lambda place: str(told["numbers"][place[1]]["text"]), words)

    columns = [filled_in(cell) for cell in table["columns"]]
    rows = markdown(columns, [[filled_in(cell) for cell in row] for row in table["rows"]])
    return f"{rows}\n*{filled_in(table['caption'])}*\n" if table["caption"] else rows


def bounds(run: str) -> str:
    """What the paths of each member's circuit cost, beside the same rows in heads that the circuit does not name."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence

    evidence = Evidence.read(RunFolder.open(RESULTS / run))
    full = evidence.last("circuit_loss", part="full")
    places = ["member", "layer", "head", "part"]
    names = {
        "own": "loss_if_ablated",
        "middle": "loss_if_others_ablated",
        "most": "loss_if_others_ablated_high",
    }
    frames = [evidence.rows(metric).set_index(places)["value"].rename(name) for name, metric in names.items()]
    table = frames[0].to_frame().join(frames[1:])
    rows = []
    for member, paths in table.groupby("member"):
        rise = paths.sub(full[member])
        rows.append(
            [
                str(member),
                f"{len(paths)}",
                f"{(paths['own'] > paths['most']).sum()}",
                *(
                    f"{rise[name].median():.3f} ({rise[name].min():.3f} to {rise[name].max():.3f})"
                    for name in names
                ),
            ]
        )
    return markdown(
        [
            "member",
            "paths",
            "cost more than in any head outside",
            "rise of the loss without a path",
            "the same rows in a head outside",
            "in the costliest head outside",
        ],
        rows,
    )


def controls() -> str:
    """What must not be there, for every claim of the built-in studies."""
    from hopscope.claims import Criterion
    from hopscope.studies import find_study
    from hopscope.studies.llm.config import LanguageModelConfig
    from hopscope.studies.loading import BUILT_IN
    from hopscope.studies.tiny_lm.config import TinyLmConfig

    chosen: dict[str, Any] = {
        "llm": LanguageModelConfig(model=("a/b",), formulations=("kingdoms",)),
        "tiny-lm": TinyLmConfig(control=True),
    }
    rows: dict[str, list[str]] = {}
    for name in BUILT_IN:
        program = find_study(name)
        claims = program.claims(chosen[name]) if name in chosen else program.study.all_claims()
        for claim in claims:
            must_not = claim.must_not
            several = {} if must_not is None or isinstance(must_not, Criterion) else must_not
            if isinstance(must_not, Criterion):
                words = must_not.words()
            elif len({each.words() for each in several.values()}) == 1:
                words = next(iter(several.values())).words()
            else:
                words = "; ".join(f"{part} {each.words()}" for part, each in several.items())
            # R12 is in two studies.
            words = re.sub(r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.4f}", words)
            rows.setdefault(claim.id, [claim.id, ", ".join(claim.controls or {}) or "–", words or "–"])
    return markdown(["claim", "control", "which must not be"], [*rows.values()])


def memoriser() -> str:
    """How far the model that was set by hand knows the training mappings of four values, by split."""
    from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
    from hopscope.studies.permutation.probes.posterior import measure_posteriors, training_mappings
    from hopscope.tasks.permutation import PermutationTask
    from hopscope.zoo import memoriser as by_hand

    rows = []
    for split in range(10):
        config = PermutationStudyConfig(split_seed=split)
        task = PermutationTask(config.task(Configuration.parse("d32/2 plain V=4")))
        known = {tuple(mapping) for mapping in training_mappings(task).tolist()}
        held_out = [mapping for mapping in permutations(range(1, 5)) if mapping not in known]
        found = measure_posteriors(by_hand.memoriser(held_out), task, config.evaluation_limit)
        floors = (f"{found[name]:.4f}" for name in ("uniform_floor", "training_floor"))
        loss, share = (found[name][0] for name in ("train_loss_exhaustive", "memorised_share"))
        rows.append([str(split), *floors, f"{loss:.4f}", f"{share:.3f}"])
    head = [
        "split",
        "loss of the uniform observer",
        "of the one that knows",
        "of the model",
        "share of the way",
    ]
    return markdown(head, rows)
