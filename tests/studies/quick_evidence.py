"""Made-up evidence of a study of quick models, and what its page says of it."""

from dataclasses import replace

from tests.story.user_run import texts

from hopscope.claims import Ledger, judge
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study

SEEDS = 16


def evidence(study, options, loss, *, diverged=(), training_steps=400):
    """Two points of the curve of every symbol's loss.

    Args:
        study: whose configurations there are.
        options: its options.
        loss: function of a configuration, the step of a symbol and the seed that gives the final loss.
        diverged: members without a value.
        training_steps: of the run.
    """
    members, rows = [], []
    for each in study.configurations(options):
        steps = each.overrides.get("task.steps", study.task.steps)
        for seed in range(SEEDS):
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": each.label, "overrides": each.overrides}
            )
            for step in range(1, steps + 1):
                final = None if member in diverged else loss(each, step, seed)
                name = f"loss_step_{step}"
                rows += [
                    Row(member, "training", name, value, step=at)
                    for at, value in {0: 1.1, training_steps: final}.items()
                ]
    config = {"task": {}, "model": {"width": 512}, "training": {"steps": training_steps},
              "options": options.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(study, options, found):
    """Claim → verdict."""
    return of_one_completion(study.claims(options), found)


def of_one_completion(claims, found):
    """Claim → verdict, as if the run's completion were the only one; what others have to do with it is tested apart."""
    return {claim.id: judge(replace(claim, kind=None), found).verdict for claim in claims}


def page(study, found, path, fields=None):
    """The words of the page of a run of the largest preset with some fields changed; its figures are drawn once."""
    program = find_study(study.name)
    config = program.configured("workstation", fields or {})
    run = RunFolder.create(path, study.name, config.model_dump(mode="json"), [], None)
    claims = [judge(claim, found) for claim in study.all_claims()]
    program.present(run, config, found, Ledger(claims))
    for name in figure_names(run.path / "figures"):
        render_figure(run.path / "figures", name)
    return texts(run.read_json("story.json")).replace("\u00a0", " ")
