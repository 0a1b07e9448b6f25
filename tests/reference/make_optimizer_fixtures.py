#!/usr/bin/env python3
"""Writes the fixtures of optimizers: ten steps of models in fixtures/ by each optimizer's reference.

    python make_optimizer_fixtures.py [OUT [NAME...]]   # OUT defaults to fixtures/optimizers beside this file; NAME: these alone

A fixture names the model whose weights, tokens, targets and documents it begins with, the options under
tinyloom's names, and what the reference reported before each step: the loss and the gradient norm before
clipping. The references are torch.optim.SGD, Muon and Adafactor, lion-pytorch and torchao's AdamW8bit. Two fixtures
train by AdamW with other objectives: label smoothing as torch's cross_entropy has it, and a z-loss.
"""


import torch
import torch.nn.functional as F
from lion_pytorch import Lion
from safetensors.numpy import load_file
from torchao.optim import AdamW8bit
from transformers import AutoModelForCausalLM

from make_fixtures import (
    HERE, IGNORE, STEPS, adamw, asked, forward, prepared, write_json, write_names,
)

OPTIONS = {"schedule": "constant", "weight_decay": 0.1, "max_grad_norm": 1.0}

ADAMW = {
    "optimizer": "adamw",
    "learning_rate": 3e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
}

ADAFACTOR = {
    "optimizer": "adafactor",
    "beta2_decay": -0.8,
    "epsilon": 2**-23,
    "least_scale": 1e-3,
    "clip_threshold": 1.0,
}

# A decay far above the usual ones, so that ten losses show where it is missing or doubled.
FIXTURES = {
    "sgd": {
        "model": "llama",
        "options": {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.02},
    },
    "sgd-plain": {
        "model": "qwen3",
        "options": {
            "optimizer": "sgd",
            "learning_rate": 0.3,
            "momentum": 0.0,
            "weight_decay": 0.05,
            "max_grad_norm": 2.0,
        },
    },
    "lion": {
        "model": "llama-tied",
        "options": {
            "optimizer": "lion",
            "learning_rate": 1e-3,
            "beta1": 0.9,
            "beta2": 0.99,
            "weight_decay": 1.0,
        },
    },
    # Some tensors are large enough for codes, others are not.
    "adamw8bit": {
        "model": "llama-tied",
        "options": ADAMW | {"optimizer": "adamw8bit"},
    },
    # None is.
    "adamw8bit-small": {
        "model": "llama",
        "options": ADAMW | {"optimizer": "adamw8bit"},
    },
    "muon": {
        "model": "llama",
        "options": ADAMW | {"optimizer": "muon", "learning_rate": 1e-2, "momentum": 0.95},
    },
    "muon-gpt2": {
        "model": "gpt2",
        "options": ADAMW | {"optimizer": "muon", "momentum": 0.9},
    },
    "adafactor": {
        "model": "llama",
        "options": ADAFACTOR | {"learning_rate": 0.03, "weight_decay": 0.5},
    },
    "adafactor-gpt2": {
        "model": "gpt2",
        "options": ADAFACTOR
        | {
            "learning_rate": 0.03,
            "beta2_decay": -0.5,
            "epsilon": 1e-3,
            "least_scale": 0.03,
            "clip_threshold": 1.25,
        },
    },
    "smoothed": {
        "model": "llama",
        "options": ADAMW | {"label_smoothing": 0.1},
    },
    "z-loss": {
        "model": "qwen3",
        "options": ADAMW | {"label_smoothing": 0.2, "z_loss": 0.01},
    },
}


def objective(logits, targets, options):
    """What is minimised and reported: smoothed cross-entropy plus the z-loss."""
    smoothing = options.get("label_smoothing", 0.0)
    wanted = targets.where(targets != IGNORE, -100)
    loss = F.cross_entropy(logits, wanted, ignore_index=-100, label_smoothing=smoothing)
    squares = logits[targets != IGNORE].logsumexp(-1) ** 2
    return loss + options.get("z_loss", 0.0) * squares.mean()


def orthogonal(grad, ns_coefficients, ns_steps, eps):
    """What torch.optim.Muon orthogonalises with, in f32 where PyTorch has bf16."""
    a, b, c = ns_coefficients
    tall = grad.size(0) > grad.size(1)
    x = grad.T if tall else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon:
    """Muon on the matrices of the layers, AdamW on the rest."""

    def __init__(self, model, options):
        named = list(model.named_parameters())
        of_layer = [p for n, p in named if p.dim() == 2 and (".layers." in n or ".h." in n)]
        known = {id(p) for p in of_layer}
        matrices = [p for _, p in named if p.dim() == 2 and id(p) not in known]
        rest = [p for _, p in named if p.dim() == 1]
        rate, decay = options["learning_rate"], options["weight_decay"]
        muon = torch.optim.Muon(
            of_layer,
            lr=rate,
            weight_decay=decay,
            momentum=options["momentum"],
            adjust_lr_fn="match_rms_adamw",
        )
        adamw = torch.optim.AdamW(
            [{"params": matrices}, {"params": rest, "weight_decay": 0.0}],
            lr=rate,
            betas=(options["beta1"], options["beta2"]),
            eps=options["epsilon"],
            weight_decay=decay,
            foreach=False,
        )
        self.parts = [muon, adamw]

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()


def optimizer_of(model, options):
    """The reference, with decay on matrices alone."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices}, {"params": rest, "weight_decay": 0.0}]
    rate, decay = options["learning_rate"], options["weight_decay"]
    match options["optimizer"]:
        case "adamw":
            return adamw(model.parameters(), options)
        case "adamw8bit":
            betas, eps = (options["beta1"], options["beta2"]), options["epsilon"]
            return AdamW8bit(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay)
        case "muon":
            return Muon(model, options)
        case "adafactor":
            eps = (options["epsilon"], options["least_scale"])
            return torch.optim.Adafactor(
                groups,
                lr=rate,
                beta2_decay=options["beta2_decay"],
                eps=eps,
                d=options["clip_threshold"],
                weight_decay=decay,
                foreach=False,
            )
        case "sgd":
            momentum = options["momentum"]
            return torch.optim.SGD(
                groups, lr=rate, momentum=momentum, weight_decay=decay, foreach=False
            )
        case "lion":
            betas = (options["beta1"], options["beta2"])
            return Lion(groups, lr=rate, betas=betas, weight_decay=decay)
    raise ValueError(options["optimizer"])


def train(name, fixture):
    folder = HERE / "fixtures" / fixture["model"]
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    oracle = load_file(folder / "oracle.safetensors")
    batch = [torch.from_numpy(oracle[key].astype("int64")) for key in ("tokens", "targets", "documents")]
    tokens, targets, starts = batch
    assert (targets == IGNORE).any() or fixture["model"] != "llama"
    options = OPTIONS | fixture["options"]
    optimizer = optimizer_of(model, options)
    steps = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = objective(forward(model, tokens, starts), targets, options)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options["max_grad_norm"])
        optimizer.step()
        steps.append({"step": step, "loss": loss.item(), "grad_norm": norm.item()})
    print(f"{name}: {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}")
    return {"model": fixture["model"], "options": options, "steps": steps}


def main():
    # AdamW8bit compiles its step for speed; operation by operation it is the same arithmetic.
    torch.compile = lambda step, **_: step
    torch.optim._muon._zeropower_via_newtonschulz = orthogonal
    out = prepared("optimizers")
    out.mkdir(parents=True, exist_ok=True)
    for name, fixture in asked(FIXTURES).items():
        write_json(out / f"{name}.json", train(name, fixture))
    write_names(out / "names.mjs", "make_optimizer_fixtures.py", "OPTIMIZERS", FIXTURES)


if __name__ == "__main__":
    main()
