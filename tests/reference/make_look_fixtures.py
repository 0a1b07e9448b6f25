#!/usr/bin/env python3
"""Writes what transformers shows of a model's inside, for `model.hiddenStates` and `model.attention`.

    python make_look_fixtures.py [OUT [NAME...]]   # OUT defaults to fixtures/look beside this file; NAME: these alone

For each model in fixtures/ a file MODEL.safetensors: the hidden states and the attention of the first tokens
of its longest document, from eager attention in float32 on one CPU thread. The same in float64 must agree to
a tenth of what the tests allow.
"""


import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from make_fixtures import FIXTURES, HERE, asked, prepared

# The square of it is what a head's file takes. More than any window.
MOST_TOKENS = 12
NOISE = 1e-5


def longest(documents):
    """Where the longest packed document begins and ends."""
    starts, lengths = np.unique(documents, return_counts=True)
    index = lengths.argmax()
    return int(starts[index]), int(starts[index] + lengths[index])


def look(model, tokens):
    with torch.no_grad():
        out = model(tokens[None], use_cache=False, output_hidden_states=True, output_attentions=True)
    states, shares = torch.cat(out.hidden_states), torch.cat(out.attentions)
    layers = model.config.num_hidden_layers
    assert states.shape == (layers + 1, len(tokens), model.config.hidden_size), states.shape
    heads = model.config.num_attention_heads
    assert shares.shape == (layers, heads, len(tokens), len(tokens)), shares.shape
    # The last hidden state is behind the final norm: the head gives the logits of it.
    logits, cap = model.get_output_embeddings()(states[-1]), getattr(model.config, "final_logit_softcapping", None)
    # Granite divides the logits.
    logits = logits / getattr(model.config, "logits_scaling", 1)
    assert torch.equal(logits if cap is None else torch.tanh(logits / cap) * cap, out.logits[0])
    return states, shares


def make(name, out):
    folder = HERE / "fixtures" / name
    oracle = load_file(folder / "oracle.safetensors")
    begin, end = longest(oracle["documents"])
    tokens = oracle["tokens"][begin : min(end, begin + MOST_TOKENS)]
    ids = torch.from_numpy(tokens.astype(np.int64))
    load = lambda dtype: AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    )
    states, shares = look(load(torch.float32), ids)
    exact = look(load(torch.float64), ids)
    worst = max((a - b).abs().max().item() for a, b in zip((states, shares), exact))
    assert worst < NOISE, (name, worst)
    arrays = {"tokens": tokens, "hidden_states": states.numpy(), "attention": shares.numpy()}
    path = out / f"{name}.safetensors"
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    print(f"{path.stat().st_size:8} {path.name}, {len(tokens)} tokens, float32 within {worst:.1e}")


def main():
    out = prepared("look")
    out.mkdir(parents=True, exist_ok=True)
    for name in asked(FIXTURES):
        make(name, out)


if __name__ == "__main__":
    main()
