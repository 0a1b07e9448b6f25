"""Models of tinyloom's `model_type: "tinyloom"` in PyTorch: layers are what config.json says of each.

    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)

A new one, which tinyloom loads once it is saved:

    config = TinyloomConfig(hidden_size=64, num_hidden_layers=4, layers=[{"sliding_window": 16}, {}])
    TinyloomForCausalLM(config).save_pretrained(FOLDER)

tinyloom (https://www.npmjs.com/package/tinyloom), MIT or Apache-2.0.
"""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

# What a layer has where neither its entry of `layers` nor the model says it. Sizes that are None follow from others.
LAYER = {
    "attention": True,
    "num_attention_heads": 8,
    "num_key_value_heads": None,  # as many as heads
    "head_dim": None,  # hidden_size / num_attention_heads
    "rope_theta": 10000.0,  # the base of the rotary embedding, or None for none
    "partial_rotary_factor": 1.0,  # the share of each head, from its first element on, that turns
    "sliding_window": None,  # a position sees so many of the latest, itself among them
    "qk_norm": False,
    "attn_logit_softcapping": None,  # scores become cap * tanh(score / cap)
    "attention_bias": False,
    "mlp": True,
    "intermediate_size": None,  # 4 * hidden_size
    "gated": True,
    "hidden_act": "silu",
    "mlp_bias": False,
    "parallel": False,
    "norm": "before",  # "before", "after", "both", "sum" or "none"
    "norm_type": "rms",  # or "layer"
    "norm_eps": 1e-5,
}

ACTIVATIONS = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class TinyloomConfig(PretrainedConfig):
    model_type = "tinyloom"

    def __init__(
        self,
        vocab_size=32000,
        hidden_size=512,
        num_hidden_layers=8,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.02,
        learned_positions=False,
        final_norm=True,
        final_logit_softcapping=None,
        layers=None,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.learned_positions = learned_positions
        self.final_norm = final_norm
        self.final_logit_softcapping = final_logit_softcapping
        self.layers = layers
        missing = dict(LAYER, rope_theta=None) if learned_positions else LAYER
        for name, value in missing.items():
            setattr(self, name, kwargs.pop(name, value))
        self.use_cache = kwargs.pop("use_cache", False)
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    def layer(self, index):
        """All fields of a layer. A list of fewer layers begins again."""
        entries = [entry for entry in self.layers or [{}] for _ in range(entry.get("repeat", 1))]
        fields = {name: getattr(self, name) for name in LAYER} | entries[index % len(entries)]
        layer = SimpleNamespace(hidden_size=self.hidden_size, **fields)
        layer.num_key_value_heads = layer.num_key_value_heads or layer.num_attention_heads
        layer.head_dim = layer.head_dim or self.hidden_size // layer.num_attention_heads
        layer.intermediate_size = layer.intermediate_size or 4 * self.hidden_size
        return layer


def norm(config, size):
    kind = nn.LayerNorm if config.norm_type == "layer" else nn.RMSNorm
    return kind(size, eps=config.norm_eps)


def rotated(x, positions, theta, share):
    """x: [batch, heads, tokens, head_dim]; halves of what turns do so together (arXiv:2104.09864)."""
    half = int(x.shape[-1] * share) // 2
    # On the CPU: not every device has float64.
    turns = theta ** -(torch.arange(half, dtype=torch.float64) / half)
    angles = positions[:, None, :, None].cpu().double() * turns
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    first, second, rest = x.tensor_split((half, 2 * half), dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def capped(x, cap):
    return x if cap is None else cap * torch.tanh(x / cap)


class Attention(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        size, bias = layer.hidden_size, layer.attention_bias
        width = layer.num_attention_heads * layer.head_dim
        of_keys = layer.num_key_value_heads * layer.head_dim
        self.q_proj = nn.Linear(size, width, bias=bias)
        self.k_proj = nn.Linear(size, of_keys, bias=bias)
        self.v_proj = nn.Linear(size, of_keys, bias=bias)
        self.o_proj = nn.Linear(width, size, bias=bias)
        if layer.qk_norm:
            self.q_norm = nn.RMSNorm(layer.head_dim, eps=layer.norm_eps)
            self.k_norm = nn.RMSNorm(layer.head_dim, eps=layer.norm_eps)

    def forward(self, x, positions, mask):
        layer = self.layer
        projections = (self.q_proj, self.k_proj, self.v_proj)
        heads = lambda y: y.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
        query, key, value = (heads(projection(x)) for projection in projections)
        if layer.qk_norm:
            query, key = self.q_norm(query), self.k_norm(key)
        if layer.rope_theta is not None:
            turn = positions, layer.rope_theta, layer.partial_rotary_factor
            query, key = (rotated(y, *turn) for y in (query, key))
        if layer.sliding_window is not None:
            index = torch.arange(x.shape[1], device=x.device)
            mask = mask & (index[:, None] - index < layer.sliding_window)
        group = layer.num_attention_heads // layer.num_key_value_heads
        key, value = (y.repeat_interleave(group, dim=1) for y in (key, value))
        cap = layer.attn_logit_softcapping
        if cap is None:
            y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = capped(query @ key.transpose(-1, -2) / layer.head_dim**0.5, cap)
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ value
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, layer):
        super().__init__()
        size, feed, bias = layer.hidden_size, layer.intermediate_size, layer.mlp_bias
        self.act = ACTIVATIONS[layer.hidden_act]
        if layer.gated:
            self.gate_proj = nn.Linear(size, feed, bias=bias)
        self.up_proj = nn.Linear(size, feed, bias=bias)
        self.down_proj = nn.Linear(feed, size, bias=bias)
        self.gated = layer.gated

    def forward(self, x):
        up = self.up_proj(x)
        return self.down_proj(self.act(self.gate_proj(x)) * up if self.gated else self.act(up))


class Layer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        places = {"before": ["norm"], "after": ["post_norm"], "sum": ["sum_norm"], "none": []}
        places["both"] = places["before"] + places["after"]
        for block in ("attention", "mlp"):
            if getattr(layer, block):
                for place in places[layer.norm]:
                    self.add_module(f"{block}_{place}", norm(layer, layer.hidden_size))
        if layer.attention:
            self.self_attn = Attention(layer)
        if layer.mlp:
            self.mlp = MLP(layer)

    def normed(self, name, x):
        return getattr(self, name)(x) if hasattr(self, name) else x

    def added(self, block, compute, x, to):
        """What the block computes of x, added to the residual stream."""
        y = self.normed(f"{block}_post_norm", compute(self.normed(f"{block}_norm", x)))
        return self.normed(f"{block}_sum_norm", to + y)

    def forward(self, x, positions, mask):
        y = x
        if self.layer.attention:
            y = self.added("attention", lambda z: self.self_attn(z, positions, mask), x, y)
        if self.layer.mlp:
            y = self.added("mlp", self.mlp, x if self.layer.parallel else y, y)
        return y


class TinyloomPreTrainedModel(PreTrainedModel):
    config_class = TinyloomConfig
    base_model_prefix = "model"
    _no_split_modules = ["Layer"]
    _supports_sdpa = True

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            nn.init.ones_(module.weight)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)


class TinyloomModel(TinyloomPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size)
        if config.learned_positions:
            self.embed_positions = nn.Embedding(config.max_position_embeddings, size)
        layers = range(config.num_hidden_layers)
        self.layers = nn.ModuleList(Layer(config.layer(index)) for index in layers)
        if config.final_norm:
            self.norm = norm(config, size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        batch, tokens = input_ids.shape
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        # A padded text begins where its padding ends.
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=input_ids.device).tril()
        mask = causal & attention_mask[:, None, None, :].bool()
        # A padding row sees itself: of nothing there is no softmax.
        mask = mask | torch.eye(tokens, dtype=torch.bool, device=input_ids.device)
        x = self.embed_tokens(input_ids)
        if self.config.learned_positions:
            x = x + self.embed_positions(positions)
        states = [x]
        for layer in self.layers:
            x = layer(x, positions, mask)
            states.append(x)
        if self.config.final_norm:
            x = states[-1] = self.norm(x)
        return x, tuple(states)


class TinyloomForCausalLM(TinyloomPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = TinyloomModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self, input_ids, attention_mask=None, labels=None, output_hidden_states=None, **_
    ):
        x, states = self.model(input_ids, attention_mask)
        logits = capped(self.lm_head(x), self.config.final_logit_softcapping)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        states = states if output_hidden_states else None
        return CausalLMOutput(loss=loss, logits=logits, hidden_states=states)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
        """The whole text again: there is no cache."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}


TinyloomConfig.register_for_auto_class()
TinyloomForCausalLM.register_for_auto_class("AutoModelForCausalLM")
