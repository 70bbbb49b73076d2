"""Heads that formed in training are found, and are needed: slow evidence."""

import pytest
import torch

from hopscope.tasks.text import TextConfig, questions

STEPS, BATCH = 1500, 64


def trained(planted, kept):
    """A GPT-2 of two layers that has learned equations of depth 1, on other questions than `kept`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = planted.tokenizer()
    config = GPT2Config(
        vocab_size=len(planted.VOCABULARY), n_positions=53, n_embd=64, n_layer=2, n_head=4, bos_token_id=1,
        eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(3)
        model = GPT2LMHeadModel(config)
    seen = list(questions(TextConfig(formulation="equations", depth=1), 2000, 0))[kept:]
    rows = torch.tensor([tokenizer(f"{one.prompt} {one.answer}")["input_ids"] for one in seen])
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=STEPS)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        batch = rows[torch.randint(len(rows), (BATCH,), generator=generator)]
        logits = model(input_ids=batch[:, :-1], logits_to_keep=1).logits[:, 0]
        loss = torch.nn.functional.cross_entropy(logits, batch[:, -1])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.eval(), tokenizer


@pytest.mark.soak
def test_heads_that_formed_in_training(planted):
    from hopscope.llm.heads import score
    from hopscope.llm.heads_model import attentive

    model, tokenizer = trained(planted, kept=128)
    found = score(
        attentive("trained here", model, tokenizer),
        "equations",
        depth=1,
        count=64,
        top=(1, 2),
        pretrained=False,
    )
    print(found["top"], found["ablation"], found["words"])
    two = found["ablation"][-1]
    assert two["interval"][0] > 0.9
    assert two["cost"]["top"] >= 30
    assert two["cost"]["top"] > two["cost"]["random"]
    assert found["claims"][0]["verdict"] == "inconclusive"
