#!/usr/bin/env python3
"""Writes fixtures/adapters/sum: a second adapter for fixtures/llama, and what PEFT gives with both, each by a scale.

    python make_adapter_sum_fixtures.py [OUT]

The two have other ranks, modules and kinds of scale. PEFT sums them by `add_weighted_adapter`.
"""

import json

import numpy as np
import torch
from peft import LoraConfig, PeftModel
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

from make_adapter_fixtures import fill, saved_name
from make_fixtures import FIXTURES, HERE, make_batch, prepared, write_json

SCALES = [0.75, -0.5]


def main():
    out = prepared("adapters", "sum")
    out.mkdir(parents=True, exist_ok=True)
    fixtures = HERE / "fixtures"
    base = AutoModelForCausalLM.from_pretrained(
        fixtures / "llama", dtype=torch.float32, attn_implementation="eager"
    )
    model = PeftModel.from_pretrained(base, fixtures / "adapters" / "llama", adapter_name="first")
    second = LoraConfig(r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])
    model.add_adapter("second", second)
    fill({saved_name(k): p for k, p in model.named_parameters() if ".second." in k}, 39)
    model.save_pretrained(out, selected_adapters=["second"])
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (out / "second" / name).rename(out / name)
    config = json.loads((out / "adapter_config.json").read_text())
    write_json(out / "adapter_config.json", config | {
        "base_model_name_or_path": None, "target_modules": sorted(config["target_modules"]),
    })
    (out / "second" / "README.md").unlink(missing_ok=True)
    (out / "second").rmdir()
    (out / "README.md").unlink(missing_ok=True)
    model.add_weighted_adapter(["first", "second"], SCALES, "sum", combination_type="cat")
    model.set_adapter("sum")
    tokens = make_batch(FIXTURES["llama"])[0][:29]
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
        prompt = tokens[None, :7]
        text = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False)
    arrays = {"tokens": tokens.numpy().astype(np.uint32), "logits": np.ascontiguousarray(logits.numpy())}
    save_file(arrays, out / "oracle.safetensors")
    write_json(out / "greedy.json", {"scales": SCALES, "prompt": prompt[0].tolist(), "tokens": text[0, 7:].tolist()})


if __name__ == "__main__":
    main()
