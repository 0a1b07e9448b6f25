"""A second opinion on the oracle: a GPT-NeoX in float64, on one packed row of documents.

As packed_llama.py: float64 throughout, no code of transformers, one row of tokens with a block-diagonal
causal mask and positions that restart in every document.
"""

import math

import torch
import torch.nn.functional as F

ACTIVATIONS = {"gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh")}


def turned(x, angles):
    """Rotates the first elements of each head of [heads, tokens, head_dim], as many as there are angles twice."""
    half = angles.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


def logits(config, weights, tokens, documents):
    """Logits [tokens, vocab] for float64 `weights` by the names of the checkpoint."""
    n, heads, hidden = len(tokens), config["num_attention_heads"], config["hidden_size"]
    dim = hidden // heads
    rows = torch.arange(n)
    seen = (rows[None, :] <= rows[:, None]) & (documents[None, :] == documents[:, None])
    pairs = torch.arange(int(dim * config["rotary_pct"]) // 2, dtype=torch.float64)
    angles = (rows - documents)[:, None] * config["rotary_emb_base"] ** (-pairs / len(pairs))
    w = {k.removeprefix("gpt_neox."): x for k, x in weights.items()}

    def norm(module, x):
        centred = x - x.mean(-1, keepdim=True)
        deviation = (centred.square().mean(-1, keepdim=True) + config["layer_norm_eps"]).sqrt()
        return centred / deviation * w[f"{module}.weight"] + w[f"{module}.bias"]

    def product(module, x):
        return x @ w[f"{module}.weight"].T + w.get(f"{module}.bias", 0.0)

    def attention(layer, x):
        # A head's query, key and value follow each other.
        own = product(f"{layer}.query_key_value", x).view(n, heads, 3, dim).permute(2, 1, 0, 3)
        q, k = (turned(t, angles) for t in own[:2])
        scores = (q @ k.transpose(1, 2) / math.sqrt(dim)).masked_fill(~seen, -math.inf)
        attended = (scores.softmax(-1) @ own[2]).transpose(0, 1).reshape(n, hidden)
        return product(f"{layer}.dense", attended)

    def feed(layer, x):
        up = ACTIVATIONS[config["hidden_act"]](product(f"{layer}.dense_h_to_4h", x))
        return product(f"{layer}.dense_4h_to_h", up)

    x = w["embed_in.weight"][tokens]
    for layer in (f"layers.{i}" for i in range(config["num_hidden_layers"])):
        middle = x + attention(f"{layer}.attention", norm(f"{layer}.input_layernorm", x))
        read = x if config.get("use_parallel_residual", True) else middle
        x = middle + feed(f"{layer}.mlp", norm(f"{layer}.post_attention_layernorm", read))
    head = next((w[k] for k in ("embed_out.weight", "lm_head.weight") if k in w), w["embed_in.weight"])
    return norm("final_layer_norm", x) @ head.T
