"""Opens exported folders with transformers and reads their cards with the hub's library: `exported_worker.py FOLDER …`.

A process of its own: transformers warns.  `in.npz` holds the tokens; logits and attention go to `out.npz`, the card's
front matter to `card.json`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM


def main() -> None:
    torch.set_num_threads(1)
    for folder in map(Path, sys.argv[1:]):
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        with torch.no_grad():
            found = model(torch.from_numpy(np.load(folder / "in.npz")["tokens"]), output_attentions=True)
        patterns = {f"pattern_{layer}": each.numpy() for layer, each in enumerate(found.attentions)}
        np.savez(folder / "out.npz", logits=found.logits.numpy(), **patterns)
        card = ModelCard.load(folder / "README.md", ignore_metadata_errors=False)
        results = [[each.metric_name, each.metric_type, each.metric_value] for each in card.data.eval_results]
        told = {
            "library": card.data.library_name,
            "tags": card.data.tags,
            "results": results,
            "text": card.text,
        }
        (folder / "card.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
