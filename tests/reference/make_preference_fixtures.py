#!/usr/bin/env python3
"""Writes the fixtures of preferences: losses and gradients of TRL's trainers on pairs of texts of a model in fixtures/.

    python make_preference_fixtures.py [OUT]   # OUT defaults to fixtures/preferences beside this file

`preferences.json` has the model and the reference, the pairs, and for each case the options under tinyloom's names with
the loss. `preferences.safetensors` has the gradients as CASE.TENSOR. The losses are TRL's own methods: `_compute_loss` of
`DPOTrainer` and `KTOTrainer`, `cpo_loss` and `get_batch_logps` of `CPOTrainer`. Their trainers are not made, since
these want the package `datasets`; what the methods read of a trainer is given here.
"""

import os
import sys
from collections import defaultdict
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

from make_fixtures import HERE, prepared, write_json


class Stub(ModuleType):
    """A module that has any class that is imported from it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in ("datasets", "datasets.fingerprint", "pandas", "pyarrow", "pyarrow.compute", "pyarrow.types"):
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = Stub(name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
from trl.experimental.cpo.cpo_trainer import CPOTrainer  # noqa: E402
from trl.trainer.dpo_trainer import DPOTrainer  # noqa: E402
from trl.trainer.kto_trainer import KTOTrainer  # noqa: E402
from trl.trainer.utils import add_fused_lm_head  # noqa: E402

MODEL, REFERENCE = "llama", "llama3"
#: Lengths of prompt, chosen and rejected text.
LENGTHS = [(3, 6, 4), (1, 2, 9), (7, 5, 5), (4, 1, 3)]

CASES = {
    "dpo": {"loss": "sigmoid", "beta": 0.3},
    "ipo": {"loss": "ipo", "beta": 0.4},
    "simpo": {"loss": "simpo", "beta": 2.0, "gamma": 0.7},
    "simpo-smoothed": {"loss": "simpo", "beta": 1.5, "gamma": 0.5, "labelSmoothing": 0.1},
    "kto": {"beta": 0.2, "desirableWeight": 1.0, "undesirableWeight": 1.5},
}


def loaded(name):
    folder = HERE / "fixtures" / name
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def padded(texts, prefix=""):
    """Prompts with completions, filled up on the right."""
    longest = max(len(prompt) + len(completion) for prompt, completion in texts)
    made = torch.zeros(3, len(texts), longest, dtype=torch.long)
    for row, (prompt, completion) in enumerate(texts):
        length = len(prompt) + len(completion)
        made[0, row, :length] = torch.tensor(prompt + completion)
        made[1, row, :length] = 1
        made[2, row, len(prompt) : length] = 1
    names = ("input_ids", "attention_mask", "completion_mask")
    return {prefix + name: tensor for name, tensor in zip(names, made)}


def trainer_of(model, reference, options, **more):
    """What the methods read of a trainer."""
    same = lambda tensor: tensor
    accelerator = SimpleNamespace(device="cpu", gather_for_metrics=same, gather=same)
    return SimpleNamespace(
        model=model,
        ref_model=reference,
        accelerator=accelerator,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        beta=options["beta"],
        label_smoothing=options.get("labelSmoothing", 0.0),
        aux_loss_enabled=False,
        _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
        _total_train_tokens=0,
        _tp_size=1,
        **more,
    )


def dpo(model, reference, pairs, options):
    rows = [(pair["prompt"], pair[kind]) for kind in ("chosen", "rejected") for pair in pairs]
    trainer = trainer_of(
        model,
        reference,
        options,
        loss_types=[options["loss"]],
        loss_weights=[1.0],
        f_divergence_type="reverse_kl",
        ld_alpha=None,
        precompute_ref_logps=False,
        use_weighting=False,
    )
    return DPOTrainer._compute_loss(trainer, model, padded(rows), False)


def simpo(model, _, pairs, options):
    rows = [(pair["prompt"], pair[kind]) for kind in ("chosen", "rejected") for pair in pairs]
    batch = padded(rows)
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
    logs = CPOTrainer.get_batch_logps(logits, labels, average_log_prob=True)
    trainer = trainer_of(model, None, options, alpha=0.0, loss_type="simpo", simpo_gamma=options["gamma"])
    losses, _, _ = CPOTrainer.cpo_loss(trainer, *logs.chunk(2))
    return losses.mean()


def kto(model, reference, pairs, options):
    texts = [(pair["prompt"], pair[kind]) for pair in pairs for kind in ("chosen", "rejected")]
    mismatched = [(prompt, texts[row - 1][1]) for row, (prompt, _) in enumerate(texts)]
    batch = padded(texts) | padded(mismatched, "KL_")
    batch["label"] = torch.tensor([True, False] * len(pairs))
    trainer = trainer_of(
        model,
        reference,
        options,
        loss_type="kto",
        calculate_KL=True,
        precompute_ref_logps=False,
        desirable_weight=options["desirableWeight"],
        undesirable_weight=options["undesirableWeight"],
    )
    trainer._compute_kl_logps = lambda *given: KTOTrainer._compute_kl_logps(trainer, *given)
    return KTOTrainer._compute_loss(trainer, model, batch, False)


def main():
    out = prepared("preferences")
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    vocabulary = loaded(MODEL).config.vocab_size
    ids = lambda count: random.integers(0, vocabulary, count).tolist()
    pairs = [dict(zip(("prompt", "chosen", "rejected"), map(ids, lengths))) for lengths in LENGTHS]
    written, tensors = {"model": MODEL, "reference": REFERENCE, "pairs": pairs, "cases": {}}, {}
    for name, options in CASES.items():
        model, reference = loaded(MODEL), loaded(REFERENCE)
        kind = {"kto": kto}.get(name, simpo if options.get("loss") == "simpo" else dpo)
        if kind is not simpo:
            add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
            add_fused_lm_head(reference)
        loss = kind(model, reference, pairs, options)
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss = loss.mean()
        loss.backward()
        for key, parameter in model.named_parameters():
            tensors[f"{name}.{key}"] = np.ascontiguousarray(parameter.grad.numpy())
        written["cases"][name] = {"options": options, "loss": loss.item()}
        print(f"{name}: {loss.item():.6f}")
    write_json(out / "preferences.json", written)
    save_file(tensors, out / "preferences.safetensors")


if __name__ == "__main__":
    main()
