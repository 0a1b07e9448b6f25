#!/usr/bin/env python3
"""Writes LoRA adapters by PEFT on the models in fixtures/, and what they give.

    python make_adapter_fixtures.py [OUT]        # OUT defaults to fixtures/adapters beside this file

Every adapter is written by PEFT's own `save_pretrained`. B is as random as A: at B = 0, where training
begins, every gradient of A is 0, and a wrong one would not show. The oracle is float32 on one CPU
thread, as in make_fixtures.py, on the batch of the base's fixture. Before anything is kept, it is
compared with packed_llama.py, packed_gpt2.py or packed_neox.py in float64 on weights W + scale · B·A, which shares no code with PEFT.

With dropout, PEFT draws no masks of its own: each of its Dropout modules is replaced by one that applies
the masks of tinyloom, drawn here once more from the numbers that decide them.
"""

import json
import math

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

import packed_llama
from masks import Masks
from make_fixtures import (
    FIXTURES,
    GRADIENT_NOISE,
    HERE,
    LOGIT_NOISE,
    LOSS_NOISE,
    OPTIONS,
    STEPS,
    adamw,
    forward,
    make_batch,
    mean_loss,
    prepared,
    second,
    write_json,
)

# Between them: dropout, every module and some of those that tinyloom stacks, biases of the base beside an
# adapter, rsLoRA, ranks that are and are not a multiple of 4, a scale of one.
ADAPTERS = {
    "llama": {
        "base": "llama",
        "seed": 31,
        "lora": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    },
    "qwen2-rslora": {
        "base": "qwen2",
        "seed": 32,
        "lora": dict(
            r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"]
        ),
    },
    "qwen3": {
        "base": "qwen3",
        "seed": 33,
        "lora": dict(r=8, lora_alpha=8, target_modules=["k_proj", "o_proj", "up_proj"]),
    },
    # Its matrices are stored [in, out].
    "gpt2": {
        "base": "gpt2",
        "seed": 35,
        "lora": dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
    },
    # Of a family whose queries, keys and values have no biases, and its others have.
    "gpt-neo": {
        "base": "gpt-neo",
        "seed": 36,
        "lora": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "out_proj", "c_fc", "c_proj"]),
    },
    # Its queries, keys and values are one module, stored head by head.
    "gpt-neox": {
        "base": "gpt-neox",
        "seed": 37,
        "lora": dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense", "dense_h_to_4h"]),
    },
    # Products whose sums with an adapter's are normed.
    "gemma2": {
        "base": "gemma2",
        "seed": 35,
        "lora": dict(r=4, lora_alpha=6, target_modules=["q_proj", "o_proj", "down_proj"]),
    },
    # The same numbers as in "llama": files that both have are the same bytes, which git keeps once.
    "llama-dropout": {
        "base": "llama",
        "seed": 31,
        "lora": dict(r=4, lora_alpha=8, lora_dropout=0.2, target_modules="all-linear"),
        # Of the trainer, which draws the masks.
        "options": {"seed": 5},
    },
}


class Dropped(torch.nn.Module):
    """An adapter's Dropout with given masks."""

    def __init__(self, masks, module):
        super().__init__()
        self.masks, self.module = masks, module

    def forward(self, x):
        if not self.training:
            return x
        return x * self.masks.of(self.module, *x.shape[-2:]).to(x.dtype)


def replace_dropout(model, masks):
    """Counts the modules in their order in the model. Gives their names by number."""
    adapted = [(k, m) for k, m in model.named_modules() if hasattr(m, "lora_dropout")]
    for number, (_, module) in enumerate(adapted):
        module.lora_dropout["default"] = Dropped(masks, number)
    return [name.removeprefix("base_model.model.") for name, _ in adapted]


def run(model, masks, tokens, starts):
    """As `forward`, with the masks of each document's rows."""
    edges = torch.unique(starts).tolist() + [len(tokens)]
    logits = []
    for a, b in zip(edges, edges[1:]):
        masks.row = a
        logits.append(model(tokens[None, a:b], use_cache=False).logits[0])
    return torch.cat(logits)


def saved_name(name):
    """A parameter's name in adapter_model.safetensors."""
    return name.replace(".default.", ".")


def adapter_of(model):
    return {saved_name(k): p for k, p in model.named_parameters() if p.requires_grad}


def fill(adapter, seed):
    with torch.no_grad():
        for index, (name, p) in enumerate(sorted(adapter.items())):
            normal = np.random.default_rng([seed, index]).standard_normal(p.shape)
            normal *= p.shape[1] ** -0.5 * (0.2 if ".lora_B." in name else 1.0)
            p.copy_(torch.from_numpy(normal.astype(np.float32)))


def scale_of(lora):
    return lora["lora_alpha"] / (math.sqrt(lora["r"]) if lora.get("use_rslora") else lora["r"])


def merged_weights(base, adapter, scale):
    """The base's weights with scale · B·A added, as functions of the adapter's."""
    # GPT-2's matrices are stored [in, out].
    by_columns = any(".c_attn." in name for name in base)
    merged = dict(base)
    for name, a in adapter.items():
        if ".lora_A." in name:
            module = name.removeprefix("base_model.model.").replace(".lora_A", "")
            product = scale * (adapter[name.replace("lora_A", "lora_B")] @ a)
            merged[module] = base[module] + (product.T if by_columns else product)
    return merged


def train(model, masks, batch):
    tokens, targets, starts = batch
    adapter = adapter_of(model)
    # It decays all that it trains: A and B are matrices.
    optimizer = adamw(adapter.values(), OPTIONS)
    steps = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        masks.micro_step = step - 1
        loss = mean_loss(run(model, masks, tokens, starts), targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(adapter.values(), OPTIONS["max_grad_norm"])
        optimizer.step()
        steps.append({"step": step, "loss": loss.item(), "grad_norm": norm.item()})
    return steps


def second_logits(config, base, adapter, scale, dropped, batch):
    """Logits by packed_llama, packed_gpt2 or packed_neox; `dropped` has the masks and the modules by number."""
    tokens, _, starts = batch
    masks, modules = dropped
    if masks.rate == 0:
        return second(config).logits(config, merged_weights(base, adapter, scale), tokens, starts)
    masks.row = 0

    def beside(module, x):
        name = f"base_model.model.{module}"
        kept = x * masks.of(modules.index(module), *x.shape)
        a, b = (adapter[f"{name}.lora_{part}.weight"] for part in "AB")
        return scale * (kept @ a.T @ b.T)

    return packed_llama.logits(config, base, tokens, starts, beside)


def second_opinion(fixture, scale, base, initial, oracle, steps, dropped):
    """Repeats oracle and training in float64 and measures how far float32 was from it."""
    batch = make_batch(fixture)
    targets = batch[1]
    base = {k: v.double() for k, v in base.items()}
    weights = {k: v.double().requires_grad_() for k, v in initial.items()}
    moments, worst = {}, {"gradient": 0.0, "loss": 0.0}
    for step in range(1, len(steps) + 1):
        dropped[0].micro_step = step - 1
        logits = second_logits(fixture["config"], base, weights, scale, dropped, batch)
        loss = mean_loss(logits, targets)
        gradients = dict(zip(weights, torch.autograd.grad(loss, weights.values())))
        if step == 1:
            merged = merged_weights(base, weights, scale)
            config = fixture["config"]
            plain = second(config).logits(config, merged, batch[0], batch[2])
            worst["logit"] = (plain - oracle["logits"]).abs().max().item()
            for name, g in gradients.items():
                distance = ((oracle[f"grad.{name}"] - g).norm() / g.norm()).item()
                worst["gradient"] = max(worst["gradient"], distance)
        with torch.no_grad():
            packed_llama.adamw(weights, gradients, moments, step, OPTIONS)
        worst["loss"] = max(worst["loss"], abs(steps[step - 1]["loss"] - loss.item()))
    assert worst["logit"] < LOGIT_NOISE and worst["gradient"] < GRADIENT_NOISE, worst
    assert worst["loss"] < LOSS_NOISE, worst
    return worst


def make(name, spec, out, prepare=lambda model: None):
    """`prepare` changes the base; it may give the weights that the adapter is merged into instead."""
    folder, fixture = out / name, FIXTURES[spec["base"]]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*"):
        old.unlink()
    model = AutoModelForCausalLM.from_pretrained(
        HERE / "fixtures" / spec["base"], dtype=torch.float32, attn_implementation="eager"
    )
    own = prepare(model)
    base = {k: p.detach().clone() for k, p in model.named_parameters()}
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **spec["lora"]))
    # Where the base lay is of no use to others.
    model.peft_config["default"].base_model_name_or_path = spec["base"]
    adapter = adapter_of(model)
    fill(adapter, spec["seed"])
    own_options = spec.get("options", {})
    masks = Masks(spec["lora"].get("lora_dropout", 0), own_options.get("seed", 0))
    modules = replace_dropout(model, masks) if masks.rate else []
    # Without a look for the base elsewhere.
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink()
    # PEFT writes a set in any order.
    written = json.loads((folder / "adapter_config.json").read_text())
    written["target_modules"].sort()
    write_json(folder / "adapter_config.json", written)
    initial = {k: p.detach().clone() for k, p in adapter.items()}

    tokens, targets, starts = batch = make_batch(fixture)
    model.eval()
    logits = forward(model, tokens, starts)
    model.train()
    loss = mean_loss(run(model, masks, tokens, starts), targets)
    loss.backward()
    oracle = {"logits": logits.detach(), "loss": loss.detach()[None]}
    oracle |= {f"grad.{k}": p.grad.clone() for k, p in adapter.items()}
    steps = train(model, masks, batch)
    scale = scale_of(spec["lora"])
    worst = second_opinion(fixture, scale, base, initial, oracle, steps, (masks, modules))
    # What PEFT merges, of the adapter as it was before training.
    with torch.no_grad():
        for key, p in adapter.items():
            p.copy_(initial[key])
    merged = dict(model.merge_and_unload().named_parameters())
    changed = {k: p for k, p in merged.items() if not torch.equal(p, base[k])}
    assert len(changed) * 2 == len(adapter), sorted(changed)
    if own:
        merged = merged_weights(own, initial, scale)
    save_file({k: np.ascontiguousarray(merged[k].detach().numpy()) for k in changed}, folder / "merged.safetensors")
    arrays = {k: np.ascontiguousarray(v.numpy()) for k, v in oracle.items()}
    for key, value in zip(("tokens", "targets", "documents"), batch):
        arrays[key] = value.numpy().astype(np.uint32)
    save_file(arrays, folder / "oracle.safetensors")
    options = OPTIONS | own_options
    losses = {"base": spec["base"], "options": options, "steps": steps, "float32_noise": worst}
    write_json(folder / "losses.json", losses)
    print(name, json.dumps(worst))
    for path in sorted(folder.iterdir()):
        print(f"  {path.stat().st_size:8} {name}/{path.name}")


def main():
    out = prepared("adapters")
    for name, spec in ADAPTERS.items():
        make(name, spec, out)


if __name__ == "__main__":
    main()
