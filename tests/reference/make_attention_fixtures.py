#!/usr/bin/env python3
"""Writes the PyTorch fixtures of attention on tensors (`tinyloom/ops`).

    python make_attention_fixtures.py [OUT]      # OUT defaults to fixtures/attention beside this file

Each case is attention of f32 inputs under one mask, computed in float64 by torch's
scaled_dot_product_attention, its gradients by autograd, and stored in f32. Soft-capped scores, which that
function does not have, and the logarithms of the sums, which it does not give, are written out in torch
operations, and where both ways exist they must agree. Inputs are numbers that f16 holds, so that the same
results serve both elements. README.md lists the files.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

from make_fixtures import prepared

HERE = Path(__file__).resolve().parent
HIDDEN = -math.inf
AGREE = 1e-12


def normal(seed, *shape):
    """f32 numbers that f16 holds too."""
    values = np.random.default_rng([7, seed]).standard_normal(shape)
    return values.astype(np.float16).astype(np.float32)


def bands(rows, keys, offset, causal=False, window=None):
    """What causal and window let the queries see; query i is key i + offset."""
    own = torch.arange(rows)[:, None] + offset
    key = torch.arange(keys)[None, :]
    seen = torch.ones(rows, keys, dtype=torch.bool)
    if causal:
        seen &= key <= own
    if window is not None:
        seen &= key > own - window
        if not causal:
            seen &= key < own + window
    return seen


def same_document(starts):
    starts = torch.tensor(starts)
    return starts[..., :, None] == starts[..., None, :]


def tree(parents, context):
    """Nodes see the context, themselves and their ancestors; also as words of bits."""
    nodes = len(parents)
    seen = torch.eye(nodes, dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    words = [sum(1 << j for j in range(nodes) if seen[i, j]) for i in range(nodes)]
    return torch.cat([torch.ones(nodes, context, dtype=torch.bool), seen], 1), words


def alibi(heads, rows, keys):
    """The distance of query and key times a slope of each head."""
    own = torch.arange(rows)[:, None] + keys - rows
    distance = (own - torch.arange(keys)[None, :]).abs().double()
    slopes = 2.0 ** -torch.arange(1, heads + 1).double()
    return -slopes[:, None, None] * distance


# batch, query heads, key heads, queries, keys, head_dim
SIZES = {"grouped": (2, 4, 2, 5, 8, 8), "square": (2, 2, 1, 9, 9, 4)}


def cases():
    """(name, inputs, options of the API, what is seen, what is added, arrays of the mask)."""
    batch, heads, _, rows, keys, _ = SIZES["grouped"]
    offset = keys - rows
    yield "full", "grouped", {}, None, None, {}
    yield "causal", "grouped", {"causal": True}, bands(rows, keys, offset, True), None, {}
    for causal in (True, False):
        name = "window" if causal else "window-both"
        options = {"causal": causal, "window": 3}
        yield name, "grouped", options, bands(rows, keys, offset, causal, 3), None, {}
    lengths = torch.arange(keys) < torch.tensor([8, 3])[:, None, None, None]
    yield "lengths", "grouped", {"keyLengths": [8, 3]}, lengths, None, {}

    starts = [[0, 0, 0, 3, 4, 4, 4, 4, 4], [0, 1, 1, 1, 1, 1, 6, 6, 6]]
    seen = same_document(starts)[:, None]
    yield "documents", "square", {"documents": starts}, seen, None, {}
    packed = {"documents": starts[0], "causal": True, "window": 3}
    seen = same_document(starts[0]) & bands(9, 9, 0, True, 3)
    yield "documents-causal", "square", packed, seen, None, {}

    seen, words = tree([-1, 0, 0, 1, 2], offset)
    yield "tree", "grouped", {"tree": True}, seen, None, {"words": np.array(words, np.uint32)}
    # One query of the second item sees nothing.
    seen = torch.from_numpy(normal(20, batch, 1, rows, keys) > -0.3)
    seen[1, 0, 2] = False
    yield "boolean", "grouped", {"boolean": True}, seen, None, {"mask": seen.numpy().astype(np.uint8)}
    bias = alibi(heads, rows, keys)
    bias[1, 2, 3:7] = HIDDEN
    arrays = {"mask": bias.float().numpy()}
    options = {"additive": True, "causal": True}
    yield "additive", "grouped", options, bands(rows, keys, offset, True), bias, arrays
    options = {"causal": True, "queryOffset": 1, "softCap": 1.5, "scale": 0.7}
    yield "soft-cap", "grouped", options, bands(rows, keys, 1, True), None, {}


def explicit(query, key, value, options, seen, added):
    """Attention in single operations: output, and logarithm of each row's sum."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    scores = query @ key.mT * options.get("scale", query.shape[-1] ** -0.5)
    if cap := options.get("softCap"):
        scores = cap * torch.tanh(scores / cap)
    if added is not None:
        scores = scores + added
    if seen is None:
        seen = torch.ones_like(scores, dtype=torch.bool)
    scores = scores.masked_fill(~seen, HIDDEN)
    # Rows that see nothing: zeros, and −1e30 instead of −∞.
    some = (scores > HIDDEN).any(-1, keepdim=True)
    shown = torch.where(some, scores, 0.0)
    output = torch.where(some, torch.softmax(shown, -1) @ value, 0.0)
    sums = torch.where(some[..., 0], torch.logsumexp(shown, -1), -1e30)
    return output, sums


def fused(query, key, value, options, seen, added):
    """torch's own function, which knows neither soft-caps nor rows that see nothing."""
    mask = seen
    if added is not None:
        mask = added if seen is None else added.masked_fill(~seen, HIDDEN)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=options.get("scale"), enable_gqa=True
    )


def gradients(output, d_output, inputs):
    return torch.autograd.grad(output, inputs, d_output)


def make_inputs(seed, sizes):
    batch, heads, kv_heads, rows, keys, head_dim = sizes
    query, key = (batch, heads, rows, head_dim), (batch, kv_heads, keys, head_dim)
    shapes = {"query": query, "key": key, "value": key, "d_output": query}
    return {name: normal(10 * seed + i, *shapes[name]) for i, name in enumerate(shapes)}


def oracle(arrays, options, seen, added):
    """Output, gradients and sums by name."""
    inputs = [torch.from_numpy(arrays[n]).double().requires_grad_() for n in ("query", "key", "value")]
    d_output = torch.from_numpy(arrays["d_output"]).double()
    output, sums = explicit(*inputs, options, seen, added)
    results = [output, *gradients(output, d_output, inputs)]
    if "softCap" not in options and (sums > -1e30).all():
        theirs = fused(*inputs, options, seen, added)
        results_2 = [theirs, *gradients(theirs, d_output, inputs)]
        for ours, other in zip(results, results_2):
            assert (ours - other).norm() < AGREE * other.norm(), options
        results = results_2
    names = ("output", "d_query", "d_key", "d_value")
    found = dict(zip((*names, "logsumexp"), (*results, sums)))
    return {name: x.detach().float().numpy() for name, x in found.items()}


def main():
    out = prepared("attention")
    out.mkdir(parents=True, exist_ok=True)
    inputs = {name: make_inputs(seed, sizes) for seed, (name, sizes) in enumerate(SIZES.items())}
    arrays = {f"{kind}.{name}": x for kind, some in inputs.items() for name, x in some.items()}
    listed = {}
    for name, kind, options, seen, added, mask in cases():
        found = oracle(inputs[kind], options, seen, added) | mask
        arrays |= {f"{name}.{key}": x for key, x in found.items()}
        listed[name] = {"inputs": kind, "options": options}
    save_file({key: np.ascontiguousarray(x) for key, x in arrays.items()}, out / "oracle.safetensors")
    (out / "cases.json").write_text(json.dumps(listed, indent=2) + "\n")
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:8} {path.name}")


if __name__ == "__main__":
    main()
