"""A language model whose answers are known because it was built by hand: a GPT-2 whose blocks do nothing.

After the prompt's last word, whose embedding is zero, the logits are a column of the embedding: so the answer is drawn
from the distribution that a test names, whatever was asked.  After an answer's word the end token follows.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch

UNKNOWN, END, ANSWER = "<unk>", "<end>", "<answer>"
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }} {% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)
POSITIONS, WIDTH = 211, 4
LOW = -60.0


def build(folder: Path, answers: Mapping[str, float], *, sampled: bool = True, ends: bool = True) -> Path:
    """Write a model that says each word with its probability, then stops.

    Args:
        folder: where `save_pretrained` writes.
        answers: probability of each word.
        sampled: whether servers sample from it unless they are told otherwise.
        ends: whether it stops after a word; otherwise it goes on with the likeliest ones.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = [UNKNOWN, END, ANSWER, *answers]
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=UNKNOWN, eos_token=END, pad_token=END
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    config = GPT2Config(
        vocab_size=len(words),
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=1,
        n_head=1,
        bos_token_id=1,
        eos_token_id=1,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        table = model.transformer.wte.weight
        table[:2, 0] = LOW
        table[1, 1] = 1000.0 if ends else 0.0
        for place, probability in enumerate(answers.values(), start=3):
            table[place, 0], table[place, 1] = 20 + math.log(probability), 100.0 if ends else 0.0
        model.transformer.ln_f.weight[1] = 1.0
        model.transformer.ln_f.bias[0] = 1.0
    model.generation_config = GenerationConfig(
        do_sample=sampled, eos_token_id=1, pad_token_id=1, bos_token_id=1, max_new_tokens=4
    )
    model.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "gpt2"
    return folder
