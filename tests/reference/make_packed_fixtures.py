#!/usr/bin/env python3
"""Writes LoRA adapters by PEFT on weights that were packed and unpacked, and what they give.

    python make_packed_fixtures.py [OUT]        # OUT defaults to fixtures/adapters beside this file

The bases in fixtures/adapters/packed-*base are checkpoints in BF16. PEFT runs on what its matrices stand for
once they are packed, by the formula of docs/guides/adapters.md in float32. merged.safetensors has the checkpoint's
own matrices with the adapter added. Everything else is as make_adapter_fixtures.py has it.
"""

import json

import numpy as np
import torch

import make_adapter_fixtures as adapters
from make_fixtures import FIXTURES, HERE, classes, fill, hf_config, prepared

# By the base's folder: rows of one group, of two and of three, and an odd vocabulary. Qwen3 has norms of heads; Gemma 3 scales its
# packed embedding, which is its head too, and has two rotations, windows, and norms by 1 + the weight.
BASES = {
    "packed-base": dict(
        model_type="qwen3", vocab_size=37, hidden_size=32, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, hidden_act="silu",
        rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
    ),
    "packed-gemma3-base": dict(
        model_type="gemma3_text", vocab_size=41, hidden_size=32, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        hidden_activation="gelu_pytorch_tanh", rope_theta=5000.0, rope_local_base_freq=100.0,
        rms_norm_eps=1e-6, tie_word_embeddings=True, sliding_window=7, sliding_window_pattern=2,
        query_pre_attn_scalar=40, pad_token_id=None,
    ),
}
# By the adapter's folder: base, format and seed. Two have the same numbers, so that files of both are the same bytes.
ADAPTERS = {
    "packed-int8": ("packed-base", "int8", 43),
    "packed-int4": ("packed-base", "int4", 43),
    "packed-gemma3-int4": ("packed-gemma3-base", "int4", 45),
}
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


def make_base(folder, sizes, seed):
    folder.mkdir(parents=True, exist_ok=True)
    model = classes(sizes)[1](hf_config(sizes))
    fill(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink()


def main():
    out = prepared("adapters")
    for seed, (name, sizes) in zip((41, 46), BASES.items()):
        make_base(out / name, sizes, seed)
        FIXTURES[f"adapters/{name}"] = {
            "seed": seed + 1, "lengths": [9, 1, 23], "ignored": [8, 15], "config": sizes,
        }
    for name, (base, weights, seed) in ADAPTERS.items():
        spec = {"base": f"adapters/{base}", "seed": seed, "lora": LORA}
        adapters.make(name, spec, out, lambda model: pack(model, weights))
        path = out / name / "losses.json"
        losses = {"weights": weights} | json.loads(path.read_text())
        path.write_text(json.dumps(losses, indent=2) + "\n")


if __name__ == "__main__":
    main()
