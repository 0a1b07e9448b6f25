#!/usr/bin/env python3
"""Writes the fixtures of dropout: ten AdamW steps of models in fixtures/ under tinyloom's masks.

    python make_dropout_fixtures.py [OUT]   # OUT defaults to fixtures/dropout beside this file

A fixture names the model whose weights, tokens, targets and documents it begins with, the rates of embeddings,
attention and residuals, and what PyTorch reported before each step; beside it lie the gradients of the first step.
transformers' models call torch's dropout in the order of the forward pass: each call is given the mask of its place.
"""


import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from make_fixtures import HERE, OPTIONS, STEPS, adamw, mean_loss, named_parameters, prepared, write_json
from masks import Masks, place_of

SEED = 5

# Names of the rates in each family's config; GPT-NeoX has one rate for embeddings and residuals.
NAMES = {
    "gpt2": ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    "gpt-neo": ("embed_dropout", "attention_dropout", "resid_dropout"),
    "gpt-neox": ("hidden_dropout", "attention_dropout", "hidden_dropout"),
}
FIXTURES = {
    "gpt2": {"embedding": 0.2, "attention": 0.2, "residual": 0.2},
    "gpt-neo": {"embedding": 0.1, "attention": 0.4, "residual": 0.2},
    "gpt-neox": {"embedding": 0.2, "attention": 0.1, "residual": 0.2},
}


class Dropped:
    """Stands for torch.nn.functional.dropout: counts the calls of a forward pass."""

    def __init__(self, seed):
        self.seed, self.micro_step = seed, 0

    def begin(self, row, tokens):
        """Of a document that begins at this row of a batch of so many tokens."""
        self.row, self.tokens, self.calls = row, tokens, 0

    def __call__(self, x, p, training=True, inplace=False):
        call, self.calls = self.calls, self.calls + 1
        if not training or p == 0:
            return x
        masks = Masks(p, self.seed)
        masks.micro_step, masks.row = self.micro_step, self.row
        layer, kind = divmod(call - 1, 3)
        place = place_of() if call == 0 else place_of(layer, kind)
        # Probabilities are [1, heads, rows, keys].
        of_keys = x.dim() == 4
        assert of_keys == (call > 0 and kind == 0), f"call {call} is of {tuple(x.shape)}"
        if of_keys:
            kept = masks.of_keys(place, x.shape[1], x.shape[2], self.tokens)
        else:
            kept = masks.of(place, *x.shape[-2:])
        return x * kept.to(x.dtype)


def run(model, dropped, tokens, starts):
    edges = torch.unique(starts).tolist() + [len(tokens)]
    logits = []
    for a, b in zip(edges, edges[1:]):
        dropped.begin(a, len(tokens))
        logits.append(model(tokens[None, a:b], use_cache=False).logits[0])
    return torch.cat(logits)


def train(name, rates, out):
    folder = HERE / "fixtures" / name
    own = dict(zip(NAMES[name], rates.values()))
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **own
    )
    model.train()
    oracle = load_file(folder / "oracle.safetensors")
    batch = [torch.from_numpy(oracle[key].astype("int64")) for key in ("tokens", "targets", "documents")]
    tokens, targets, starts = batch
    dropped = Dropped(SEED)
    F.dropout = dropped
    optimizer = adamw(model.parameters(), OPTIONS)
    steps = []
    for step in range(1, STEPS + 1):
        dropped.micro_step = step - 1
        optimizer.zero_grad()
        loss = mean_loss(run(model, dropped, tokens, starts), targets)
        loss.backward()
        if step == 1:
            gradients = {f"grad.{k}": p.grad.clone().numpy() for k, p in named_parameters(model).items()}
            save_file(gradients, out / f"{name}.safetensors")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIONS["max_grad_norm"])
        optimizer.step()
        steps.append({"step": step, "loss": loss.item(), "grad_norm": norm.item()})
    whole = float(oracle["loss"][0])
    assert abs(steps[0]["loss"] - whole) > 1e-2, "the masks change little"
    print(f"{name}: {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}, {whole:.4f} without")
    return {"model": name, "config": own, "rates": rates, "options": OPTIONS | {"seed": SEED}, "steps": steps}


def main():
    out = prepared("dropout")
    out.mkdir(parents=True, exist_ok=True)
    for name, rates in FIXTURES.items():
        write_json(out / f"{name}.json", train(name, rates, out))


if __name__ == "__main__":
    main()
