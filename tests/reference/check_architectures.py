#!/usr/bin/env python3
"""Compares models whose layers say what they are between tinyloom and transformers.

    python check_architectures.py FOLDER

FOLDER has a folder for each model as tinyloom saved it, with a `told.json` beside its files: {"tokens": [...],
"logits": [...], "text": [...]}, the text being greedy tokens behind those. For each a fresh model of the same class is
written to the folder `made`, with a `told.json` of the same kind for tinyloom to compare. Prints as JSON by name the
largest difference of logits, and whether the texts are equal.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
torch.set_num_threads(1)


@torch.no_grad()
def told(model, tokens, count):
    ids = torch.tensor([tokens])
    logits = model(ids).logits[0]
    # All tokens count, token 0 among them.
    how = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0, "do_sample": False}
    text = model.generate(ids, max_new_tokens=count, **how)[0, len(tokens):]
    return {"tokens": tokens, "logits": logits.flatten().tolist(), "text": text.tolist()}


def main(folder):
    compared = {}
    for path in sorted(Path(folder).iterdir()):
        expected = json.loads((path / "told.json").read_text())
        # from_pretrained only warns of a missing tensor and invents it: ask, and refuse.
        model, info = AutoModelForCausalLM.from_pretrained(
            path, trust_remote_code=True, local_files_only=True, output_loading_info=True
        )
        if any(info.values()):
            sys.exit(f"{path.name}: transformers did not load the tensors one to one: {info}")
        found = told(model, expected["tokens"], len(expected["text"]))
        pairs = zip(found["logits"], expected["logits"], strict=True)
        worst = max(abs(one - other) for one, other in pairs)
        # Norms and biases that are not those of a new model, too.
        torch.manual_seed(7)
        fresh = type(model)(model.config)
        for parameter in fresh.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.1 * torch.randn_like(parameter)
        fresh.save_pretrained(path / "made")
        (path / "made" / "told.json").write_text(json.dumps(told(fresh.eval(), expected["tokens"], 12)))
        compared[path.name] = {"logits": worst, "text": found["text"] == expected["text"]}
    print(json.dumps(compared))


main(sys.argv[1])
