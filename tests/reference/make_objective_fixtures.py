#!/usr/bin/env python3
"""Writes the fixtures of a step's own objectives: loss and gradients of models in fixtures/ by PyTorch.

    python make_objective_fixtures.py [OUT]   # OUT defaults to fixtures/objectives beside this file

`objectives.json` names for each case the model, the trainer's options and the step's under tinyloom's names, and the
loss. `objectives.safetensors` has the weights of targets, the teacher's ids and probabilities, and the gradients as
CASE.TENSOR. Divergences are torch's `kl_div`, over classes of one id each and one of the rest, or over the ids alone.
"""

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from make_fixtures import HERE, IGNORE, forward, prepared, write_json

IDS = 6

CASES = {
    "weighted": {"model": "llama", "step": {}},
    "tempered": {
        "model": "llama",
        "options": {"label_smoothing": 0.1, "z_loss": 0.01},
        "step": {"normalize": "weights", "temperature": 0.8},
    },
    "forward": {
        "model": "llama",
        "step": {"normalize": 7.5, "soft": {"temperature": 2.0, "share": 0.7}},
    },
    "forward-renormalized": {
        "model": "llama",
        "step": {"temperature": 1.5, "soft": {"temperature": 1.5, "share": 1.0, "renormalized": True}},
    },
    "reverse": {
        "model": "llama",
        "step": {"soft": {"temperature": 1.0, "share": 0.5, "reverse": True}},
    },
    "reverse-renormalized": {
        "model": "llama",
        "step": {"soft": {"temperature": 3.0, "share": 1.0, "reverse": True, "renormalized": True}},
    },
    "capped": {
        "model": "gemma2",
        "step": {"temperature": 1.25, "soft": {"temperature": 2.0, "share": 0.6}},
    },
}


def classes(logits, ids, probabilities, renormalized):
    """Log-probabilities of the student's classes, and the teacher's."""
    ours = logits.log_softmax(-1)
    own = ours.gather(-1, ids)
    if renormalized:
        return own.log_softmax(-1), (probabilities / probabilities.sum(-1, keepdim=True)).log()
    others = ours.scatter(-1, ids, float("-inf")).logsumexp(-1, keepdim=True)
    rest = 1 - probabilities.sum(-1, keepdim=True)
    return torch.cat([own, others], -1), torch.cat([probabilities, rest], -1).log()


def objective(logits, targets, weights, teacher, options, step):
    temperature = step.get("temperature", 1.0)
    wanted = targets.where(targets != IGNORE, -100)
    tempered = logits / temperature
    smoothing = options.get("label_smoothing", 0.0)
    losses = F.cross_entropy(tempered, wanted, ignore_index=-100, label_smoothing=smoothing, reduction="none")
    losses = losses + options.get("z_loss", 0.0) * tempered.logsumexp(-1) ** 2
    if soft := step.get("soft"):
        own = classes(logits / soft["temperature"], *teacher, soft.get("renormalized", False))
        student, other = own
        first, second = (student, other) if not soft.get("reverse") else (other, student)
        apart = F.kl_div(first, second, log_target=True, reduction="none").sum(-1)
        losses = (1 - soft["share"]) * losses + soft["share"] * soft["temperature"] ** 2 * apart
    counted = targets != IGNORE
    match step.get("normalize", "targets"):
        case "targets":
            divisor = counted.sum()
        case "weights":
            divisor = weights[counted].abs().sum()
        case number:
            divisor = number
    return (weights * losses)[counted].sum() / divisor


def main():
    out = prepared("objectives")
    out.mkdir(parents=True, exist_ok=True)
    written, tensors = {}, {}
    for name, case in CASES.items():
        folder = HERE / "fixtures" / case["model"]
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        oracle = load_file(folder / "oracle.safetensors")
        batch = [torch.from_numpy(oracle[key].astype("int64")) for key in ("tokens", "targets", "documents")]
        tokens, targets, starts = batch
        rows, vocabulary = len(tokens), model.config.vocab_size
        random = np.random.default_rng(11)
        weights = random.normal(size=rows).astype("float32")
        weights[::9] = 0.0
        ids = np.stack([random.permutation(vocabulary)[:IDS] for _ in range(rows)]).astype("uint32")
        shares = np.ascontiguousarray(random.dirichlet(np.ones(IDS + 1), size=rows).astype("float32")[:, :IDS])
        of = case["model"]
        tensors |= {f"{of}.weights": weights, f"{of}.ids": ids, f"{of}.probabilities": shares}
        teacher = torch.from_numpy(ids.astype("int64")), torch.from_numpy(shares)
        options, step = case.get("options", {}), case["step"]
        loss = objective(forward(model, tokens, starts), targets, torch.from_numpy(weights), teacher, options, step)
        loss.backward()
        for key, parameter in model.named_parameters():
            tensors[f"{name}.{key}"] = np.ascontiguousarray(parameter.grad.numpy())
        written[name] = {"model": of, "options": options, "step": step, "loss": loss.item()}
        print(f"{name}: {loss.item():.5f}")
    write_json(out / "objectives.json", written)
    save_file(tensors, out / "objectives.safetensors")


if __name__ == "__main__":
    main()
