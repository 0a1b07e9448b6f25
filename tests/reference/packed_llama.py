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


def layer_norm(x, weight, bias, eps):
    x = x - x.mean(-1, keepdim=True)
    return rms_norm(x, weight, eps) + bias


def rope(x, cos, sin):
    """Rotates the beginning of [heads, tokens, head_dim] by halves: element i of d pairs with i + d / 2."""
    dims = cos.shape[-1]
    a, b, rest = x.split((dims, dims, x.shape[-1] - 2 * dims), dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


def frequencies(config, long):
    """Radians per position of each pair, and the factor on cosines and sines. `long`: in texts beyond the positions
    of the first training, where LongRoPE (arXiv:2402.13753) has other divisors.

    Llama 3.1's scaling as its paper's code describes it; YaRN's as its paper does (arXiv:2309.00071,
    sections 3.2 to 3.4), its bounds of turns rounded outwards to whole pairs.
    """
    dim = int(config["head_dim"] * config.get("partial_rotary_factor", 1))
    plain = config["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = config.get("rope_scaling", {"rope_type": "default"})
    kind = scaling["rope_type"]
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "dynamic":
        # The base grows with texts that are longer than the model's positions.
        return plain, 1.0
    if kind == "longrope":
        positions, original = 64, config["original_max_position_embeddings"]
        divisors = torch.tensor(scaling["long_factor" if long else "short_factor"], dtype=torch.float64)
        return plain / divisors, math.sqrt(1 + math.log(positions / original) / math.log(original))
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept, magnitude = ((turns - low) / (high - low)).clamp(0, 1), 1.0
    else:
        assert kind == "yarn"
        # The pair, counted in fractions, that turns so often within the first training's positions.
        pair = lambda count: dim / 2 * math.log(turns[0].item() / count, config["rope_theta"])
        low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        kept = 1 - ((torch.arange(dim // 2) - low) / (high - low)).clamp(0, 1)
        weighed = lambda scale: 0.1 * scale * math.log(scaling["factor"]) + 1
        magnitude = weighed(scaling.get("mscale", 1)) / weighed(scaling.get("mscale_all_dim", 0))
    return kept * plain + (1 - kept) * plain / scaling["factor"], magnitude


def logits(config, weights, tokens, documents, beside=lambda module, x: 0.0):
    """Logits [tokens, vocab] for float64 `weights` by safetensors name. `beside` gives what an adapter adds to
    the product of a module with x."""
    n, dim = len(tokens), config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    eps = config.get("rms_norm_eps", config.get("layer_norm_eps"))
    rows = torch.arange(n)
    def table(config):
        kinds = [frequencies(config, long) for long in (False, True)]
        magnitude = kinds[0][1]
        lengths = (documents[None, :] == documents[:, None]).sum(1)
        long = lengths > config.get("original_max_position_embeddings", n)
        turned = torch.where(long[:, None], kinds[1][0], kinds[0][0])
        angles = (rows - documents).double()[:, None] * turned
        return magnitude * angles.cos(), magnitude * angles.sin()

    own = config.get("rope_parameters")
    cos, sin = (None, None) if own else table(config)
    seen = (rows[None, :] <= rows[:, None]) & (documents[None, :] == documents[:, None])
    kind = config.get("model_type", "llama")
    gemma = kind.startswith("gemma")
    scale = config.get("attention_multiplier", config.get("query_pre_attn_scalar", dim) ** -0.5)
    cap = lambda x, limit: x if limit is None else limit * torch.tanh(x / limit)
    # Gemma norms by 1 + the weight, and scales embeddings.
    norm = lambda x, weight: rms_norm(x, weight + 1 if gemma else weight, eps)

    def named_norm(x, module):
        weight, bias = weights.get(f"{module}.weight"), weights.get(f"{module}.bias")
        if weight is None:
            return x
        return norm(x, weight) if bias is None else layer_norm(x, weight, bias, eps)

    activation = ACTIVATIONS[config.get("hidden_activation", config.get("hidden_act"))]

    x = weights["model.embed_tokens.weight"][tokens]
    x = x * (config["hidden_size"] ** 0.5 if gemma else config.get("embedding_multiplier", 1))
    # Granite scales what a block adds.
    added_by = config.get("residual_multiplier", 1)
    for layer in range(config["num_hidden_layers"]):
        visible = seen
        # In Gemma 2 and 3, all layers but every second or sixth have a window, and in Gemma 3 other angles.
        pattern = config.get("sliding_window_pattern", {"gemma2": 2, "gemma3_text": 6}.get(kind))
        windowed = config.get("use_sliding_window", True) and (pattern is None or (layer + 1) % pattern)
        if windowed:
            visible = seen & (rows[:, None] - rows[None, :] < config.get("sliding_window", n))
        if kind == "gemma3_text":
            if own:
                turns = own["sliding_attention" if windowed else "full_attention"]
                cos, sin = table(config | {"rope_theta": turns["rope_theta"], "rope_scaling": turns})
            else:
                local = {"rope_theta": config["rope_local_base_freq"], "rope_scaling": {"rope_type": "default"}}
                cos, sin = table(config | local if windowed else config)
        w = {k: weights.get(f"model.layers.{layer}.{k}.weight") for k in LAYER_NAMES}
        bias = lambda k: weights.get(f"model.layers.{layer}.{k}.bias", 0.0)
        linear = lambda k, x: x @ w[k].T + bias(k) + beside(f"model.layers.{layer}.{k}", x)
        h = named_norm(x, f"model.layers.{layer}.input_layernorm")
        # Phi-3 has one matrix for all three, and one for gate and up.
        joined = kind == "phi3"
        if joined:
            parts = [heads * dim, kv_heads * dim, kv_heads * dim]
            q, k, v = linear("self_attn.qkv_proj", h).split(parts, dim=-1)
        else:
            q, k, v = (linear(f"self_attn.{p}_proj", h) for p in "qkv")
        # OLMo 2 norms all heads' queries together, and their keys.
        norms = [weights.get(f"model.layers.{layer}.self_attn.{p}_norm.weight") for p in "qk"]
        if kind == "olmo2":
            q, k = (norm(t, w) for t, w in zip((q, k), norms))
            norms = [None, None]
        q, k, v = (t.view(n, -1, dim).transpose(0, 1) for t in (q, k, v))
        # Qwen3 norms each head's queries and keys.
        q, k = (t if w is None else norm(t, w) for t, w in zip((q, k), norms))
        # SmolLM3 has no RoPE in some layers.
        if (layer + 1) % config.get("no_rope_layer_interval", layer + 2):
            q, k = (rope(t, cos, sin) for t in (q, k))
        # Query head i reads key/value head i // (heads / kv_heads).
        k, v = (t.repeat_interleave(heads // kv_heads, dim=0) for t in (k, v))
        scores = q @ k.transpose(1, 2) * scale
        scores = cap(scores, config.get("attn_logit_softcapping"))
        attended = scores.masked_fill(~visible, -math.inf).softmax(-1) @ v
        added = linear("self_attn.o_proj", attended.transpose(0, 1).reshape(n, heads * dim))
        # Gemma 2 norms what each block adds too, and OLMo 2 that alone.
        four = w["post_feedforward_layernorm"] is not None
        before = "pre_feedforward_layernorm" if four else "post_attention_layernorm"
        x = x + added_by * (norm(added, w["post_attention_layernorm"]) if four else added)
        h = named_norm(x, f"model.layers.{layer}.{before}")
        gate, up = (
            linear("mlp.gate_up_proj", h).chunk(2, dim=-1)
            if joined
            else (linear("mlp.gate_proj", h), linear("mlp.up_proj", h))
        )
        added = linear("mlp.down_proj", activation(gate) * up)
        x = x + added_by * (norm(added, w["post_feedforward_layernorm"]) if four else added)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    logits = named_norm(x, "model.norm") @ head.T / config.get("logits_scaling", 1)
    return cap(logits, config.get("final_logit_softcapping"))


LAYER_NAMES = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.qkv_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.gate_up_proj",
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
