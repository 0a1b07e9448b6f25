"""A second opinion on the oracle: a GPT-2 in float64, on one packed row of documents.

As packed_llama.py: float64 throughout, no code of transformers, one row of tokens with a block-diagonal
causal mask and positions that restart in every document.
"""

import math

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def logits(config, weights, tokens, documents):
    """Logits [tokens, vocab] for float64 `weights` by the names of the whole checkpoint."""
    n, heads, hidden = len(tokens), config["n_head"], config["n_embd"]
    rows = torch.arange(n)
    visible = (rows[None, :] <= rows[:, None]) & (documents[None, :] == documents[:, None])
    w = {k.removeprefix("transformer."): x for k, x in weights.items()}

    def norm(module, x):
        centred = x - x.mean(-1, keepdim=True)
        deviation = (centred.square().mean(-1, keepdim=True) + config["layer_norm_epsilon"]).sqrt()
        return centred / deviation * w[f"{module}.weight"] + w[f"{module}.bias"]

    def product(module, x):
        return x @ w[f"{module}.weight"] + w[f"{module}.bias"]

    x = w["wte.weight"][tokens] + w["wpe.weight"][rows - documents]
    for layer in (f"h.{i}" for i in range(config["n_layer"])):
        qkv = product(f"{layer}.attn.c_attn", norm(f"{layer}.ln_1", x))
        q, k, v = (t.view(n, heads, -1).transpose(0, 1) for t in qkv.chunk(3, dim=-1))
        scores = (q @ k.transpose(1, 2) / math.sqrt(hidden // heads)).masked_fill(~visible, -math.inf)
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, hidden)
        x = x + product(f"{layer}.attn.c_proj", attended)
        up = ACTIVATIONS[config["activation_function"]](
            product(f"{layer}.mlp.c_fc", norm(f"{layer}.ln_2", x))
        )
        x = x + product(f"{layer}.mlp.c_proj", up)
    return norm("ln_f", x) @ w.get("lm_head.weight", w["wte.weight"]).T
