#!/usr/bin/env python3
"""Writes what transformers gives where a text holds the token `pad_token_id`, for models in fixtures/.

    python make_padding_fixtures.py [OUT]   # OUT defaults to fixtures/padding beside this file

A fixture names the model whose weights, targets and documents it takes, what its config says of `pad_token_id`
(nothing where that is absent), the tokens, and what transformers gives: the loss, the norm of all gradients, and of the
gradient of the embedding the padding's row and the norm of the others; and whether that row of a new model is zero.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_fixtures import HERE, forward, mean_loss, write_json

ABSENT = "absent"
# A name, the model, and its pad_token_id. Gemma's config without the field has 0.
FIXTURES = {
    "llama": ("llama", 5),
    "llama-none": ("llama", None),
    "llama-last": ("llama-tied", -1),
    "mistral": ("mistral", 3),
    "qwen2": ("qwen2", 4),
    "qwen3": ("qwen3", 7),
    "gemma": ("gemma", ABSENT),
    "gemma2": ("gemma2", ABSENT),
    "gemma3": ("gemma3", 6),
    "gemma-none": ("gemma", None),
    "gpt2": ("gpt2", 5),
    "gpt-neo": ("gpt-neo", 5),
    "gpt-neox": ("gpt-neox", 5),
}


def make(name, of, pad, out):
    folder = HERE / "fixtures" / of
    fields = json.loads((folder / "config.json").read_text())
    fields.pop("pad_token_id", None)
    if pad != ABSENT:
        fields["pad_token_id"] = pad
    config = AutoConfig.for_model(**fields)
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    )
    oracle = load_file(folder / "oracle.safetensors")
    tokens, targets, starts = (
        torch.from_numpy(oracle[key].astype("int64")) for key in ("tokens", "targets", "documents")
    )
    row = (config.pad_token_id or 0) % config.vocab_size
    tokens[[1, 3, len(tokens) // 2]] = row
    loss = mean_loss(forward(model, tokens, starts), targets)
    loss.backward()
    whole = torch.cat([p.grad.flatten() for p in model.parameters()]).double()
    gradient = model.get_input_embeddings().weight.grad.double()
    others = gradient.clone()
    others[row] = 0
    fresh = AutoModelForCausalLM.from_config(config).get_input_embeddings().weight
    write_json(out / f"{name}.json", {
        "model": of,
        **({} if pad == ABSENT else {"pad_token_id": pad}),
        "tokens": tokens.tolist(),
        "row": row,
        "loss": loss.item(),
        "grad_norm": whole.norm().item(),
        "gradient": gradient[row].tolist(),
        "others": others.norm().item(),
        "begins_at_zero": not fresh[row].any().item(),
    })
    print(name, row, loss.item(), whole.norm().item(), gradient[row].norm().item())


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "fixtures" / "padding"
    target.mkdir(parents=True, exist_ok=True)
    for key, (model, pad) in FIXTURES.items():
        make(key, model, pad, target)
