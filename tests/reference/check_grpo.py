#!/usr/bin/env python3
"""Makes the steps of tests/train/grpo-run.mjs again in float64, from the texts that it drew, and prints how far apart
weights and metrics are.

    python check_grpo.py FOLDER...

The model is packed_llama's; the objective is written here as the papers have it, from whole probabilities, and torch
differentiates it. Plain gradient descent makes an update of each gradient.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import packed_llama

IGNORE = -100


def weights_of(path):
    return {name: tensor.double() for name, tensor in load_file(path).items()}


def said(config, weights, texts, temperature):
    """For each text the log-probabilities of its tokens at the temperature, and the entropies there."""
    found = []
    for text in texts:
        prompt, tokens = text["prompt"], text["tokens"]
        ids = torch.tensor(prompt + tokens)
        logits = packed_llama.logits(config, weights, ids, torch.zeros_like(ids)) / temperature
        logs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        entropy = -(logs.exp() * logs).sum(-1)
        found.append((logs.gather(-1, ids[len(prompt) :, None])[:, 0], entropy))
    return found


def advantages(run, texts):
    rewards = torch.tensor([text["given"] for text in texts], dtype=torch.float64).view(-1, run["group"])
    apart = rewards - rewards.mean(1, keepdim=True)
    match run["advantages"]:
        case "group":
            apart = apart / (rewards.std(1, keepdim=True) + 1e-4)
        case "batch":
            apart = apart / (rewards.std() + 1e-4)
    return apart.flatten().tolist()


def objective(run, now, old, reference, worth):
    """The objective, and the means of what is told of it."""
    low, high = 1 - run["clip"], 1 + run.get("clipHigh", run["clip"])
    per_text, kls, clipped = [], [], []
    for (own, _), before, theirs, advantage in zip(now, old, reference, worth, strict=True):
        ratio = own.exp() / before.exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        kl = theirs.exp() / own.exp() - (theirs - own) - 1
        per_text.append(run["klCoefficient"] * kl - gain)
        kls.append(kl.detach())
        clipped.append(((ratio > high) & (advantage > 0)) | ((ratio < low) & (advantage < 0)))
    match run["loss"]:
        case "grpo":
            total = torch.stack([terms.mean() for terms in per_text]).mean()
        case "dapo":
            total = torch.cat(per_text).mean()
        case "dr_grpo":
            total = torch.cat(per_text).sum() / (len(per_text) * run["maxTokens"])
    entropy = torch.cat([entropy.detach() for _, entropy in now]).mean().item()
    return total, {
        "objective": total.item(),
        "kl": torch.cat(kls).mean().item(),
        "clipped": torch.cat(clipped).double().mean().item(),
        "entropy": entropy,
    }


def check(folder):
    config = json.loads((folder / "config.json").read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    run = json.loads((folder / "run.json").read_text())
    before = weights_of(folder / "before.safetensors")
    after, reference = (weights_of(folder / f"{name}.safetensors") for name in ("after", "reference"))
    weights = {name: tensor.clone().requires_grad_() for name, tensor in before.items()}
    most, steps, any_clipped = 0.0, 0, 0.0
    for drawn in run["rounds"]:
        texts, worth = drawn["texts"], advantages(run, drawn["texts"])
        with torch.no_grad():
            old = [logs for logs, _ in said(config, weights, texts, run["temperature"])]
            theirs = [logs for logs, _ in said(config, reference, texts, run["temperature"])]
        if not run["klCoefficient"]:
            theirs = old
        for told in drawn["steps"]:
            now = said(config, weights, texts, run["temperature"])
            total, means = objective(run, now, old, theirs, worth)
            gradients = torch.autograd.grad(total, list(weights.values()))
            with torch.no_grad():
                for tensor, gradient in zip(weights.values(), gradients, strict=True):
                    tensor -= told["learningRate"] * gradient
            for name, value in means.items():
                if name != "kl" or "kl" in told:
                    most = max(most, abs(told[name] - value) / (1 + abs(value)))
            any_clipped = max(any_clipped, means["clipped"])
            steps += 1
    apart = 0.0
    for name, tensor in weights.items():
        moved = tensor.detach() - before[name]
        apart = max(apart, ((after[name] - tensor.detach()).norm() / moved.norm()).item())
    return {"name": folder.name, "steps": steps, "metrics": most, "weights": apart, "clipped": any_clipped}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([check(Path(folder)) for folder in sys.argv[1:]]))
