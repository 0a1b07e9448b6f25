#!/usr/bin/env python3
"""Writes LoRA adapters by PEFT on weights that were packed and unpacked, and what they give.

    python make_packed_fixtures.py [OUT]        # OUT defaults to fixtures/adapters beside this file

The base in fixtures/adapters/packed-base is a checkpoint in BF16. PEFT runs on what its matrices stand for
once they are packed, by the formula of docs/guides/adapters.md in float32. `merged.NAME` is the checkpoint's
own matrix with the adapter added. Everything else is as make_adapter_fixtures.py has it.
"""

import json
from pathlib import Path

import numpy as np
import torch

import make_adapter_fixtures as adapters
from make_fixtures import FIXTURES, HERE, classes, fill, hf_config, prepared

BASE = "adapters/packed-base"
# Rows of whole groups, an odd vocabulary, norms of heads.
SIZES = dict(
    model_type="qwen3", vocab_size=67, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, hidden_act="silu",
    rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
)
LORA = dict(r=4, lora_alpha=8, target_modules="all-linear")
GROUP = 32


def unpacked(matrix, weights):
    """What a matrix stands for once it is packed: 32 neighbours of a row share a scale."""
    groups = matrix.astype(np.float32).reshape(-1, GROUP)
    extreme = groups[np.arange(len(groups)), np.abs(groups).argmax(axis=1)][:, None]
    scale, least = (np.abs(extreme) / np.float32(127), -127) if weights == "int8" else (
        extreme / np.float32(-8), -8)
    steps = np.clip(np.round(groups * (np.float32(1) / scale)), least, 127 if weights == "int8" else 7)
    return (scale * steps.astype(np.float32)).reshape(matrix.shape)


def pack(model, weights):
    """Puts each matrix's unpacked numbers in its place; gives the checkpoint's own."""
    own = {k: p.detach().clone() for k, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p.copy_(torch.from_numpy(unpacked(p.numpy(), weights)))
    return own


def make_base(out):
    folder = out / Path(BASE).name
    folder.mkdir(parents=True, exist_ok=True)
    model = classes(SIZES)[1](hf_config(SIZES))
    fill(model, 41)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink()


def main():
    out = prepared("adapters")
    make_base(out)
    FIXTURES[BASE] = {"seed": 42, "lengths": [9, 1, 23], "ignored": [8, 15], "config": SIZES}
    for seed, weights in enumerate(("int8", "int4"), 43):
        name = f"packed-{weights}"
        spec = {"base": BASE, "seed": seed, "lora": LORA}
        adapters.make(name, spec, out, lambda model: pack(model, weights))
        path = out / name / "losses.json"
        losses = {"weights": weights} | json.loads(path.read_text())
        path.write_text(json.dumps(losses, indent=2) + "\n")


if __name__ == "__main__":
    main()
