"""A second opinion on the oracle: a Llama in float64, on one packed row of documents.

transformers keeps its norms, its softmax and its RoPE table in float32 whatever the dtype of the
model, so a `model.double()` says nothing about rounding. This one is float64 throughout, shares
no code with transformers, and takes the documents the way tinyloom does: one row of tokens, a
block-diagonal causal mask, positions that restart in every document.
"""

import math

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rope(x, cos, sin):
    """Rotates [heads, tokens, head_dim] by halves: element i pairs with i + head_dim / 2."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def frequencies(config):
    """Radians per position of each pair, and the factor on cosines and sines.

    Llama 3.1's scaling as its paper's code describes it; YaRN's as its paper does (arXiv:2309.00071,
    sections 3.2 to 3.4), its bounds of turns rounded outwards to whole pairs.
    """
    dim = config["head_dim"]
    plain = config["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = config.get("rope_scaling", {"rope_type": "default"})
    kind = scaling["rope_type"]
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept, magnitude = ((turns - low) / (high - low)).clamp(0, 1), 1.0
    else:
        assert kind == "yarn"
        # The pair, counted in fractions, that turns so often within the first training's positions.
        pair = lambda count: dim / 2 * math.log(turns[0].item() / count, config["rope_theta"])
        low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
        low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
        kept = 1 - ((torch.arange(dim // 2) - low) / (high - low)).clamp(0, 1)
        magnitude = 0.1 * math.log(scaling["factor"]) + 1
    return kept * plain + (1 - kept) * plain / scaling["factor"], magnitude


def logits(config, weights, tokens, documents, beside=lambda module, x: 0.0):
    """Logits [tokens, vocab] for float64 `weights` by safetensors name. `beside` gives what an adapter adds to
    the product of a module with x."""
    n, dim = len(tokens), config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    eps = config["rms_norm_eps"]
    rows = torch.arange(n)
    turned, magnitude = frequencies(config)
    angles = (rows - documents).double()[:, None] * turned
    cos, sin = magnitude * angles.cos(), magnitude * angles.sin()
    visible = (rows[None, :] <= rows[:, None]) & (documents[None, :] == documents[:, None])
    if config.get("use_sliding_window", True):
        visible &= rows[:, None] - rows[None, :] < config.get("sliding_window", n)

    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        w = {k: weights[f"model.layers.{layer}.{k}.weight"] for k in LAYER_NAMES}
        linear = lambda k, x: x @ w[k].T + beside(f"model.layers.{layer}.{k}", x)
        h = rms_norm(x, w["input_layernorm"], eps)
        # Qwen2 adds biases.
        biases = [weights.get(f"model.layers.{layer}.self_attn.{p}_proj.bias", 0.0) for p in "qkv"]
        q, k, v = (
            (linear(f"self_attn.{p}_proj", h) + bias).view(n, -1, dim).transpose(0, 1)
            for p, bias in zip("qkv", biases)
        )
        # Qwen3 norms each head's queries and keys.
        norms = [weights.get(f"model.layers.{layer}.self_attn.{p}_norm.weight") for p in "qk"]
        q, k = (t if w is None else rms_norm(t, w, eps) for t, w in zip((q, k), norms))
        # Query head i reads key/value head i // (heads / kv_heads).
        k, v = (t.repeat_interleave(heads // kv_heads, dim=0) for t in (rope(k, cos, sin), v))
        scores = rope(q, cos, sin) @ k.transpose(1, 2) / math.sqrt(dim)
        attended = scores.masked_fill(~visible, -math.inf).softmax(-1) @ v
        x = x + linear("self_attn.o_proj", attended.transpose(0, 1).reshape(n, heads * dim))
        h = rms_norm(x, w["post_attention_layernorm"], eps)
        gate = ACTIVATIONS[config["hidden_act"]](linear("mlp.gate_proj", h))
        x = x + linear("mlp.down_proj", gate * linear("mlp.up_proj", h))
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return rms_norm(x, weights["model.norm.weight"], eps) @ head.T


LAYER_NAMES = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def adamw(parameters, gradients, moments, step, options):
    """One AdamW update in place, written out: clipping by global norm, decoupled decay."""
    norm = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
    scale = min(1.0, options["max_grad_norm"] / norm)
    beta1, beta2, rate = options["beta1"], options["beta2"], options["learning_rate"]
    for name, p in parameters.items():
        g = gradients[name] * scale
        m, v = moments.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
        m.lerp_(g, 1 - beta1)
        v.lerp_(g * g, 1 - beta2)
        decay = options["weight_decay"] if p.dim() > 1 else 0.0
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        p.sub_(rate * (decay * p + m_hat / (v_hat.sqrt() + options["epsilon"])))
    return norm
