"""A second opinion on the oracle: a GPT-2 or a GPT-Neo in float64, on one packed row of documents.

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
    neo = config["model_type"] == "gpt_neo"
    heads, hidden, layers = (
        config[name] for name in (
            ("num_heads", "hidden_size", "num_layers") if neo else ("n_head", "n_embd", "n_layer")
        )
    )
    n = len(tokens)
    rows = torch.arange(n)
    seen = (rows[None, :] <= rows[:, None]) & (documents[None, :] == documents[:, None])
    w = {k.removeprefix("transformer."): x for k, x in weights.items()}

    def norm(module, x):
        centred = x - x.mean(-1, keepdim=True)
        deviation = (centred.square().mean(-1, keepdim=True) + config["layer_norm_epsilon"]).sqrt()
        return centred / deviation * w[f"{module}.weight"] + w[f"{module}.bias"]

    def product(module, x):
        # GPT-2 stores its matrices as [in, out].
        matrix = w[f"{module}.weight"]
        return x @ (matrix.T if neo else matrix) + w.get(f"{module}.bias", 0.0)

    def heads_of(layer, x):
        """Queries, keys and values."""
        if neo:
            return [product(f"{layer}.attn.attention.{p}_proj", x) for p in "qkv"]
        return product(f"{layer}.attn.c_attn", x).chunk(3, dim=-1)

    kinds = [kind for names, count in config["attention_types"] for kind in names * count] if neo else None
    output = "attn.attention.out_proj" if neo else "attn.c_proj"
    # GPT-Neo's scores are as they are.
    scale = 1.0 if neo else 1 / math.sqrt(hidden // heads)

    x = w["wte.weight"][tokens] + w["wpe.weight"][rows - documents]
    for index in range(layers):
        layer, visible = f"h.{index}", seen
        if kinds and kinds[index] == "local":
            visible = seen & (rows[:, None] - rows[None, :] < config["window_size"])
        qkv = heads_of(layer, norm(f"{layer}.ln_1", x))
        q, k, v = (t.view(n, heads, -1).transpose(0, 1) for t in qkv)
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(~visible, -math.inf)
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, hidden)
        x = x + product(f"{layer}.{output}", attended)
        up = ACTIVATIONS[config["activation_function"]](
            product(f"{layer}.mlp.c_fc", norm(f"{layer}.ln_2", x))
        )
        x = x + product(f"{layer}.mlp.c_proj", up)
    return norm("ln_f", x) @ w.get("lm_head.weight", w["wte.weight"]).T
