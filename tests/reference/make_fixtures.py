#!/usr/bin/env python3
"""Writes the PyTorch fixtures that tinyloom's numerics are tested against.

    python make_fixtures.py [OUT [NAME...]]   # OUT defaults to fixtures/ beside this file; NAME: these alone

Every fixture is a tiny model of a class in CLASSES, written by transformers' own `save_pretrained`,
with an oracle computed in float32 on one CPU thread (README.md lists the tensors). The weights come
from numpy generators with fixed seeds, at scales that make attention, gates and logits far from flat.
Before anything is kept, the oracle is compared with packed_llama.py, packed_gpt2.py or packed_neox.py, float64
models that share no code with transformers: a disagreement above a tenth of the tests' tolerances is an error.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)
from transformers.utils import logging

import packed_gpt2
import packed_llama
import packed_neox

HERE = Path(__file__).resolve().parent
IGNORE = 0xFFFF_FFFF
OPTIONS = {
    "learning_rate": 3e-3,
    "schedule": "constant",
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "max_grad_norm": 1.0,
}
STEPS = 10
# A tenth of what tinyloom's tests allow: logits and losses absolute, gradients relative in L2.
LOGIT_NOISE, GRADIENT_NOISE, LOSS_NOISE = 1e-5, 1e-4, 1e-5
# Greedy texts: tokens of the prompt and of the answer. A margin below ten times what the tests allow in
# a logit would let rounding choose the token.
PROMPT, ANSWER, LEAST_MARGIN = 7, 32, 1e-3

UNDROPPED = dict(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)

# Two layers of each kind, the second one with a window.
NEO = dict(
    model_type="gpt_neo", vocab_size=37, hidden_size=12, num_layers=4, num_heads=3, intermediate_size=26,
    attention_types=[[["global", "local"], 2]], window_size=7, activation_function="gelu_new",
    layer_norm_epsilon=1e-5, embed_dropout=0.0, attention_dropout=0.0, resid_dropout=0.0,
)
NEOX = dict(
    model_type="gpt_neox", vocab_size=37, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=34, hidden_act="gelu", rotary_emb_base=1000.0, rotary_pct=0.5, layer_norm_eps=1e-5,
    tie_word_embeddings=False, use_parallel_residual=True, attention_bias=True,
    # Within this vocabulary, a text would end at it.
    eos_token_id=None,
)

LONGROPE = dict(
    rope_type="longrope", short_factor=[1.0, 1.1, 1.4], long_factor=[1.1, 2.0, 3.0],
)

# `lengths` are the packed documents; `ignored` are positions whose target does not count.
# Between them: head_dim 4 to 256, heads x head_dim unlike hidden_size, odd sizes, tied and untied, the three
# activations, GQA groups of 1 to 4, documents of one token. No size is larger than what it proves: see README.md.
FIXTURES = {
    "llama": {
        "seed": 1284,
        "lengths": [13, 1, 29, 4],
        "ignored": [12, 20, 42, 46],
        "config": dict(
            vocab_size=47, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, hidden_act="silu",
            rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False,
        ),
    },
    "llama-tied": {
        "seed": 2,
        "lengths": [1, 17, 19],
        "ignored": [0, 17],
        # Between the largest and the smallest norm of the ten steps: clipped at first, then not.
        "max_grad_norm": 5.0,
        "config": dict(
            vocab_size=128, hidden_size=36, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=64,
            hidden_act="gelu_pytorch_tanh", rope_theta=500.0, rms_norm_eps=1e-5,
            tie_word_embeddings=True,
        ),
    },
    # Biases of all products.
    "llama-biases": {
        "seed": 2550,
        "lengths": [9, 1, 30],
        "ignored": [8, 30],
        "config": dict(
            vocab_size=47, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, hidden_act="silu",
            rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False, attention_bias=True,
            mlp_bias=True,
        ),
    },
    "mistral": {
        "seed": 5,
        # Shorter than the window, as long, longer.
        "lengths": [3, 5, 21],
        "ignored": [7],
        "config": dict(
            model_type="mistral", sliding_window=5, vocab_size=37, hidden_size=20,
            intermediate_size=28, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=32, hidden_act="silu", rope_theta=10000.0,
            rms_norm_eps=1e-6, tie_word_embeddings=True,
        ),
    },
    "llama3": {
        "seed": 6,
        # Long enough for the pairs whose frequencies are scaled to turn by much.
        "lengths": [3, 61],
        "ignored": [2, 40],
        "config": dict(
            vocab_size=53, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, hidden_act="silu",
            # Between them the pairs turn as before, by a part, and by a quarter.
            rope_theta=100.0,
            rope_scaling=dict(
                rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
            rms_norm_eps=1e-5, tie_word_embeddings=True,
        ),
    },
    # These two have the sizes of llama3: a scaling is a table, so they have its kernels, and cost no time.
    "llama-linear": {
        "seed": 509,
        "lengths": [5, 59],
        "ignored": [4],
        "config": dict(
            vocab_size=53, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, hidden_act="silu",
            rope_theta=100.0, rope_scaling=dict(rope_type="linear", factor=3.0),
            rms_norm_eps=1e-5, tie_word_embeddings=True,
        ),
    },
    "llama-yarn": {
        "seed": 1812,
        "lengths": [7, 57],
        "ignored": [50],
        "config": dict(
            vocab_size=53, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, hidden_act="silu",
            # The first pair turns as before, two by a part, the others by a quarter.
            rope_theta=100.0,
            rope_scaling=dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_slow=0.5,
            ),
            rms_norm_eps=1e-5, tie_word_embeddings=True,
        ),
    },
    "qwen3": {
        "seed": 1307,
        "lengths": [1, 19, 27],
        "ignored": [0, 30],
        "config": dict(
            model_type="qwen3", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            hidden_act="silu", rope_theta=1000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
        ),
    },
    # The sizes of qwen3, for its kernels.
    "qwen2": {
        "seed": 1520,
        # Longer than the window that `use_sliding_window` voids.
        "lengths": [4, 43],
        "ignored": [3, 30],
        "config": dict(
            model_type="qwen2", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            hidden_act="silu", rope_theta=1000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
            use_sliding_window=False, sliding_window=8, max_window_layers=1,
        ),
    },
    "smollm3": {
        "seed": 926,
        "lengths": [2, 25, 20],
        "ignored": [1, 30],
        "config": dict(
            model_type="smollm3", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            hidden_act="silu", rope_theta=1000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
            no_rope_layer_interval=2, pad_token_id=None,
        ),
    },
    "olmo2": {
        "seed": 1551,
        "lengths": [1, 19, 27],
        "ignored": [0, 30],
        "config": dict(
            model_type="olmo2", vocab_size=37, hidden_size=24, intermediate_size=28,
            num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, head_dim=12,
            hidden_act="silu", rope_theta=1000.0, rms_norm_eps=1e-6, tie_word_embeddings=False,
            pad_token_id=None, eos_token_id=None,
        ),
    },
    "granite": {
        "seed": 52,
        "lengths": [2, 25, 20],
        "ignored": [1, 30],
        "config": dict(
            model_type="granite", vocab_size=37, hidden_size=24, intermediate_size=28,
            num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=12,
            hidden_act="silu", rope_theta=1000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
            embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.5, logits_scaling=1.6,
            pad_token_id=None,
        ),
    },
    "stablelm": {
        "seed": 3753,
        "lengths": [4, 43],
        "ignored": [3, 30],
        "config": dict(
            model_type="stablelm", vocab_size=37, hidden_size=32, intermediate_size=34,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
            hidden_act="silu", rope_theta=1000.0, partial_rotary_factor=0.25, layer_norm_eps=1e-5,
            use_qkv_bias=True, tie_word_embeddings=False, eos_token_id=None,
        ),
    },
    "phi3": {
        "seed": 854,
        # Shorter than the window, as long, longer than twice the window.
        "lengths": [3, 7, 37],
        "ignored": [1, 25],
        "config": dict(
            model_type="phi3", vocab_size=37, hidden_size=24, intermediate_size=34,
            num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
            hidden_act="silu", rope_theta=1000.0, partial_rotary_factor=0.75, rms_norm_eps=1e-5,
            sliding_window=7, tie_word_embeddings=False, eos_token_id=None, pad_token_id=None,
        ),
    },
    # Its prompt's answer goes beyond the positions of the first training, where the angles change.
    "phi4-mini": {
        "seed": 656,
        "lengths": [24, 1, 19],
        "ignored": [1, 25],
        "config": dict(
            model_type="phi3", vocab_size=37, hidden_size=24, intermediate_size=34,
            num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
            hidden_act="silu", rope_theta=1000.0, partial_rotary_factor=0.75, rms_norm_eps=1e-5,
            rope_scaling=LONGROPE, original_max_position_embeddings=24,
            tie_word_embeddings=True, eos_token_id=None, pad_token_id=None,
        ),
    },
    # The same model beside texts that are longer.
    "phi4-mini-long-bf16": {
        "seed": 57,
        "lengths": [24, 25, 40],
        "dtype": torch.bfloat16,
        "config": dict(
            model_type="phi3", vocab_size=37, hidden_size=24, intermediate_size=34,
            num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
            hidden_act="silu", rope_theta=1000.0, partial_rotary_factor=0.75, rms_norm_eps=1e-5,
            rope_scaling=LONGROPE, original_max_position_embeddings=24,
            tie_word_embeddings=True, eos_token_id=None, pad_token_id=None,
        ),
    },
    "gpt2": {
        "seed": 4730,
        "lengths": [1, 23, 21],
        "ignored": [0, 40],
        "config": dict(
            model_type="gpt2", vocab_size=37, n_embd=24, n_layer=2, n_head=3, n_inner=34,
            activation_function="gelu_new", layer_norm_epsilon=1e-5, **UNDROPPED,
        ),
    },
    # The sizes of gpt2, for its kernels, as files of the model without its head have it, with masks.
    "gpt2-bare-f16-sharded": {
        "seed": 3331,
        "lengths": [5, 39],
        "dtype": torch.float16,
        "max_shard_size": "8KB",
        "bare": True,
        "config": dict(
            model_type="gpt2", vocab_size=37, n_embd=24, n_layer=2, n_head=3, n_inner=34,
            activation_function="gelu_new", layer_norm_epsilon=1e-5, **UNDROPPED,
        ),
    },
    "gpt2-bf16": {
        "seed": 5132,
        "lengths": [44],
        "dtype": torch.bfloat16,
        "config": dict(
            model_type="gpt2", vocab_size=37, n_embd=24, n_layer=2, n_head=3,
            activation_function="gelu", layer_norm_epsilon=1e-3, **UNDROPPED,
        ),
    },
    "gpt-neo": {
        "seed": 3840,
        # Shorter than the window, as long, longer than twice the window.
        "lengths": [3, 7, 37],
        "ignored": [1, 25],
        "config": NEO,
    },
    # As files of the model without its head have it, with masks.
    "gpt-neo-bare-f16-sharded": {
        "seed": 4041,
        "lengths": [5, 39],
        "dtype": torch.float16,
        "max_shard_size": "4KB",
        "bare": True,
        "config": NEO,
    },
    "gpt-neo-bf16": {
        "seed": 2642,
        "lengths": [44],
        "dtype": torch.bfloat16,
        "config": NEO | dict(
            num_layers=2, attention_types=[[["global", "local"], 1]], intermediate_size=None, layer_norm_epsilon=1e-3,
        ),
    },
    "gpt-neox": {
        "seed": 1443,
        "lengths": [1, 23, 21],
        "ignored": [0, 40],
        "config": NEOX,
    },
    # The other value of each flag.
    "gpt-neox-sequential": {
        "seed": 144,
        "lengths": [6, 35],
        "ignored": [5, 30],
        "config": NEOX | dict(
            rotary_pct=0.75, use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
        ),
    },
    # With masks and a rotary table, as files of old releases have them.
    "gpt-neox-f16-sharded": {
        "seed": 45,
        "lengths": [5, 39],
        "dtype": torch.float16,
        "max_shard_size": "8KB",
        "buffers": True,
        "config": NEOX,
    },
    "gpt-neox-bf16": {
        "seed": 1046,
        "lengths": [44],
        "dtype": torch.bfloat16,
        "config": NEOX | dict(rotary_pct=1.0, rotary_emb_base=10000.0),
    },
    "gemma": {
        "seed": 2421,
        "lengths": [2, 31],
        "ignored": [20],
        "config": dict(
            model_type="gemma", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=12,
            hidden_act="gelu_pytorch_tanh", rope_theta=10000.0, rms_norm_eps=1e-6,
            tie_word_embeddings=True, pad_token_id=None,
        ),
    },
    # Scores beyond the cap of scores, logits beyond that of logits.
    "gemma2": {
        "seed": 422,
        # Shorter than the window, as long, longer than twice the window.
        "lengths": [3, 7, 37],
        "ignored": [1, 25],
        "config": dict(
            model_type="gemma2", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            hidden_activation="gelu_pytorch_tanh", rope_theta=1000.0, rms_norm_eps=1e-6,
            tie_word_embeddings=True, sliding_window=7, query_pre_attn_scalar=20,
            attn_logit_softcapping=3.0, final_logit_softcapping=3.0, pad_token_id=None,
        ),
    },
    # The sizes of gemma2, with norms of queries and keys instead of the caps.
    "gemma3": {
        "seed": 5523,
        "lengths": [6, 41],
        "ignored": [5, 30],
        "config": dict(
            model_type="gemma3_text", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            hidden_activation="gelu_pytorch_tanh", rope_theta=5000.0, rope_local_base_freq=100.0,
            rope_scaling=dict(rope_type="linear", factor=2.0), rms_norm_eps=1e-6,
            tie_word_embeddings=True, sliding_window=7, sliding_window_pattern=2,
            query_pre_attn_scalar=20, pad_token_id=None,
        ),
    },
    # The sizes of gemma3: each kind of layer has a scaling of its own.
    "gemma3-scaled-bf16": {
        "seed": 658,
        "lengths": [3, 41],
        "dtype": torch.bfloat16,
        "config": dict(
            model_type="gemma3_text", vocab_size=37, hidden_size=20, intermediate_size=28,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=16,
                ),
                sliding_attention=dict(rope_type="linear", rope_theta=100.0, factor=2.0),
            ),
            tie_word_embeddings=True, sliding_window=7, sliding_window_pattern=2,
            query_pre_attn_scalar=20, pad_token_id=None,
        ),
    },
    # These two have the sizes of llama3.
    "llama-yarn-mscale-bf16": {
        "seed": 159,
        "lengths": [3, 41],
        "dtype": torch.bfloat16,
        "config": dict(
            vocab_size=53, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, hidden_act="silu",
            rope_theta=100.0,
            rope_scaling=dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.9,
                mscale_all_dim=0.6, truncate=False,
            ),
            rms_norm_eps=1e-6, tie_word_embeddings=True,
        ),
    },
    "llama-dynamic-bf16": {
        "seed": 62,
        "lengths": [3, 57],
        "dtype": torch.bfloat16,
        "config": dict(
            vocab_size=53, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, hidden_act="silu",
            rope_theta=100.0, rope_scaling=dict(rope_type="dynamic", factor=4.0),
            rms_norm_eps=1e-6, tie_word_embeddings=True,
        ),
    },
    "llama-f16-sharded": {
        "seed": 303,
        "lengths": [23],
        "dtype": torch.float16,
        "max_shard_size": "8KB",
        "config": dict(
            vocab_size=37, hidden_size=12, intermediate_size=36, num_hidden_layers=2,
            num_attention_heads=3, num_key_value_heads=1, head_dim=32, hidden_act="gelu",
            rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False,
        ),
    },
    "llama-bf16": {
        "seed": 104,
        "lengths": [19],
        "dtype": torch.bfloat16,
        "config": dict(
            vocab_size=37, hidden_size=8, intermediate_size=36, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, head_dim=256, hidden_act="silu",
            rope_theta=500000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
        ),
    },
}


CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gpt2": (GPT2Config, GPT2LMHeadModel),
    "gpt_neo": (GPTNeoConfig, GPTNeoForCausalLM),
    "gpt_neox": (GPTNeoXConfig, GPTNeoXForCausalLM),
    "gemma": (GemmaConfig, GemmaForCausalLM),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM),
    "gemma3_text": (Gemma3TextConfig, Gemma3ForCausalLM),
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM),
    "granite": (GraniteConfig, GraniteForCausalLM),
    "stablelm": (StableLmConfig, StableLmForCausalLM),
    "phi3": (Phi3Config, Phi3ForCausalLM),
}


def classes(sizes):
    """The config's and the model's class in transformers."""
    return CLASSES[sizes.get("model_type", "llama")]


def second(sizes):
    """The float64 model that computes the same."""
    own = {"gpt2": packed_gpt2, "gpt_neo": packed_gpt2, "gpt_neox": packed_neox}
    return own.get(sizes.get("model_type"), packed_llama)


def hf_config(sizes):
    if sizes.get("model_type") == "gpt2":
        return GPT2Config(**sizes, n_positions=64, attn_implementation="eager")
    config_class, _ = classes(sizes)
    sizes = dict(sizes)
    kind = sizes.pop("model_type", None)
    if kind == "gpt_neo":
        return config_class(**sizes, max_position_embeddings=64, attn_implementation="eager")
    if kind == "gpt_neox":
        rope = {"rope_type": "default", "rope_theta": sizes.pop("rotary_emb_base")}
        rope["partial_rotary_factor"] = sizes.pop("rotary_pct")
        return config_class(
            **sizes, rope_parameters=rope, max_position_embeddings=64, attn_implementation="eager"
        )
    theta = sizes.pop("rope_theta", None)
    scaling = sizes.pop("rope_scaling", {"rope_type": "default"})
    rope = {**scaling, "rope_theta": theta}
    if "partial_rotary_factor" in sizes:
        rope["partial_rotary_factor"] = sizes.pop("partial_rotary_factor")
    if kind == "stablelm":
        # Its heads are what the hidden size leaves to each.
        sizes.pop("head_dim")
    if local := sizes.pop("rope_local_base_freq", None):
        of_windows = {"rope_type": "default", "rope_theta": local}
        rope = {"full_attention": rope, "sliding_attention": of_windows}
    rope = sizes.pop("rope_parameters", rope)
    return config_class(
        **sizes,
        rope_parameters=rope,
        max_position_embeddings=64,
        attn_implementation="eager",
    )


def v4_config(sizes, dtype):
    """The same model in the spelling of transformers 4, for the config reader's tests."""
    if sizes.get("model_type") == "gpt2":
        return {
            "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.0,
            "bos_token_id": 50256,
            "eos_token_id": 50256,
            "initializer_range": 0.02,
            "n_ctx": 64,
            "n_positions": 64,
            "summary_activation": None,
            "summary_first_dropout": 0.1,
            "summary_proj_to_labels": True,
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            **sizes,
        }
    if sizes.get("model_type") in ("gpt_neo", "gpt_neox"):
        config_class, model_class = classes(sizes)
        neo = sizes["model_type"] == "gpt_neo"
        listed = [kind for names, count in sizes["attention_types"] for kind in names * count] if neo else None
        own = {"attention_layers": listed} if neo else {"rope_scaling": None, "hidden_dropout": 0.0}
        return {
            "architectures": [model_class.__name__],
            "attention_dropout": 0.0,
            "bos_token_id": config_class().bos_token_id,
            "classifier_dropout": 0.1,
            "eos_token_id": config_class().eos_token_id,
            "initializer_range": 0.02,
            "max_position_embeddings": 64,
            "torch_dtype": str(dtype).removeprefix("torch."),
            "transformers_version": "4.57.1",
            "use_cache": True,
            **own,
            **sizes,
        }
    return {
        "architectures": [classes(sizes)[1].__name__],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": classes(sizes)[0]().bos_token_id,
        "eos_token_id": classes(sizes)[0]().eos_token_id,
        "initializer_range": 0.02,
        "max_position_embeddings": 64,
        "mlp_bias": False,
        "model_type": "llama",
        "pretraining_tp": 1,
        "rope_scaling": None,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "transformers_version": "4.57.1",
        "use_cache": True,
        **sizes,
    }


def fill(model, seed):
    """Overwrites every parameter, in name order, from a numpy stream of its own."""
    kind = model.config.model_type
    with torch.no_grad():
        for index, (name, p) in enumerate(sorted(model.named_parameters())):
            normal = np.random.default_rng([seed, index]).standard_normal(p.shape)
            if name.endswith(".bias"):
                normal *= 0.5
            elif p.dim() == 1:
                # Gemma's norms multiply by 1 + the weight.
                normal = 0.2 * normal + (0.0 if "gemma" in kind else 1.0)
            elif name.endswith(("embed_tokens.weight", "wte.weight", "wpe.weight", "embed_in.weight")):
                normal *= 0.3
            elif kind == "gpt2":
                # Stored [in, out]; queries and keys are two thirds of what c_attn gives.
                normal *= p.shape[0] ** -0.5
                if "c_attn" in name:
                    normal[:, : p.shape[1] * 2 // 3] *= 1.5
            elif "query_key_value" in name:
                # A head's query, key and value follow each other.
                normal *= p.shape[1] ** -0.5
                normal.reshape(model.config.num_attention_heads, 3, -1)[:, :2] *= 1.5
            else:
                # Queries and keys above unit variance: attention that picks, not averages. GPT-Neo's scores are as
                # they are.
                peaked = 0.8 if kind == "gpt_neo" else 1.5
                normal *= (peaked if "q_proj" in name or "k_proj" in name else 1.0) * p.shape[1] ** -0.5
            p.copy_(torch.from_numpy(normal.astype(np.float32)))


def make_batch(fixture):
    """tokens, targets and document starts; the target of a document's last token is a new one."""
    rng = np.random.default_rng([fixture["seed"], 1000])
    lengths = fixture["lengths"]
    rows = [rng.integers(0, fixture["config"]["vocab_size"], n + 1) for n in lengths]
    tokens = np.concatenate([r[:-1] for r in rows])
    targets = np.concatenate([r[1:] for r in rows])
    targets[fixture.get("ignored", [])] = IGNORE
    starts = np.repeat(np.cumsum([0] + lengths[:-1]), lengths)
    return torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(starts)


def forward(model, tokens, starts):
    """Logits with every document run on its own: what packing must not change."""
    edges = torch.unique(starts).tolist() + [len(tokens)]
    spans = zip(edges, edges[1:])
    return torch.cat([model(tokens[None, a:b], use_cache=False).logits[0] for a, b in spans])


def mean_loss(logits, targets):
    return F.cross_entropy(logits, targets.where(targets != IGNORE, -100), ignore_index=-100)


def adamw(parameters, options):
    """torch's AdamW with decay on matrices alone."""
    parameters = list(parameters)
    matrices = [p for p in parameters if p.dim() > 1]
    rest = [p for p in parameters if p.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices}, {"params": rest, "weight_decay": 0.0}],
        lr=options["learning_rate"],
        betas=(options["beta1"], options["beta2"]),
        eps=options["epsilon"],
        weight_decay=options["weight_decay"],
        foreach=False,
    )


def train(model, tokens, targets, starts, options):
    """Ten AdamW steps on one batch, with torch's own optimizer and clipping."""
    optimizer = adamw(model.parameters(), options)
    steps = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = mean_loss(forward(model, tokens, starts), targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options["max_grad_norm"])
        optimizer.step()
        steps.append({"step": step, "loss": loss.item(), "grad_norm": norm.item()})
    return steps


def second_opinion(fixture, options, initial, oracle, steps, final):
    """Repeats oracle and training in float64 and measures how far float32 was from it."""
    tokens, targets, starts = make_batch(fixture)
    weights = {k: v.double().requires_grad_() for k, v in initial.items()}
    moments, worst = {}, {"gradient": 0.0, "loss": 0.0, "weight": 0.0}
    for step in range(1, len(steps) + 1):
        logits = second(fixture["config"]).logits(fixture["config"], weights, tokens, starts)
        loss = mean_loss(logits, targets)
        gradients = dict(zip(weights, torch.autograd.grad(loss, weights.values())))
        if step == 1:
            worst["logit"] = (logits - oracle["logits"]).abs().max().item()
            for name, g in gradients.items():
                distance = ((oracle[f"grad.{name}"] - g).norm() / g.norm()).item()
                worst["gradient"] = max(worst["gradient"], distance)
        with torch.no_grad():
            packed_llama.adamw(weights, gradients, moments, step, options)
        worst["loss"] = max(worst["loss"], abs(steps[step - 1]["loss"] - loss.item()))
    for name, w in weights.items():
        distance = (final[name] - w).norm() / (w - initial[name]).norm()
        worst["weight"] = max(worst["weight"], distance.item())
    return worst


def named_parameters(model):
    """Parameters by their names in the checkpoint: transformers 5 has another one for GPT-NeoX's head."""
    renamed = {"lm_head.weight": "embed_out.weight"} if model.config.model_type == "gpt_neox" else {}
    return {renamed.get(k, k): p for k, p in model.named_parameters()}


def training_oracle(model, fixture):
    tokens, targets, starts = batch = make_batch(fixture)
    options = OPTIONS | {k: fixture[k] for k in OPTIONS.keys() & fixture.keys()}
    # The float32 pass leaves its gradients in the parameters; a tied head adds into its embedding.
    logits = forward(model, tokens, starts)
    loss = mean_loss(logits, targets)
    loss.backward()
    named = named_parameters(model)
    oracle = {"logits": logits.detach(), "loss": loss.detach()[None]}
    oracle |= {f"grad.{k}": p.grad.clone() for k, p in named.items()}
    initial = {k: p.detach().clone() for k, p in named.items()}
    steps = train(model, *batch, options)
    final = {k: p.detach() for k, p in named.items()}
    worst = second_opinion(fixture, options, initial, oracle, steps, final)
    assert worst["logit"] < LOGIT_NOISE and worst["gradient"] < GRADIENT_NOISE, worst
    assert worst["loss"] < LOSS_NOISE, worst
    # Norm weights and biases whole (an undue decay shows there), every other tensor by its sums in float64.
    oracle |= {f"final.{k}": p for k, p in final.items() if p.dim() == 1}
    sums = {
        k: {
            "sum": p.double().sum().item(),
            "l2": p.double().norm().item(),
            "moved": (p.double() - initial[k].double()).norm().item(),
        }
        for k, p in final.items()
    }
    losses = {"options": options, "steps": steps, "final_weights": sums, "float32_noise": worst}
    return oracle, losses


def logits_oracle(model, fixture):
    tokens, _, starts = make_batch(fixture)
    with torch.no_grad():
        logits = forward(model, tokens, starts)
    weights = {k: p.detach().double() for k, p in named_parameters(model).items()}
    exact = second(fixture["config"]).logits(fixture["config"], weights, tokens, starts)
    worst = (exact - logits).abs().max().item()
    assert worst < LOGIT_NOISE, worst
    return {"logits": logits}


def greedy(model, fixture):
    """What transformers writes from a prompt at temperature 0, and how clear its choices were."""
    rng = np.random.default_rng([fixture["seed"], 2000])
    prompt = torch.from_numpy(rng.integers(0, fixture["config"]["vocab_size"], (1, PROMPT)))
    # Where a text becomes longer than LongRoPE's short factors are for, transformers drops its cache and then reads the
    # newest token alone. Without a cache it reads the whole text, as its forward pass does.
    scaling = fixture["config"].get("rope_scaling", {})
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        generation_config=GenerationConfig(
            max_new_tokens=ANSWER,
            do_sample=False,
            use_cache=scaling.get("rope_type") != "longrope",
            output_scores=True,
            return_dict_in_generate=True,
        ),
    )
    tokens = result.sequences[0, PROMPT:].tolist()
    margins = [(top[0] - top[1]).item() for top in (row[0].topk(2).values for row in result.scores)]
    assert len(tokens) == ANSWER and min(margins) > LEAST_MARGIN, (tokens, min(margins))
    return {"prompt": prompt[0].tolist(), "tokens": tokens, "least_margin": min(margins)}


def with_buffers(folder, kind):
    """Puts beside a model's weights the masks and tables that files of old releases hold, and names the whole
    model."""
    path = sorted(folder.glob("*.safetensors"))[-1]
    tensors = load_file(path)
    mask = np.tril(np.ones((1, 1, 64, 64), np.uint8))
    module = {"gpt2": "attn", "gpt_neo": "attn.attention", "gpt_neox": "attention"}[kind]
    at = 2 if kind == "gpt_neox" else 1
    layers = {name.split(".")[at] for name in tensors if name.startswith(("h.", "gpt_neox.layers."))}
    blocks = [f"{'gpt_neox.layers' if kind == 'gpt_neox' else 'h'}.{layer}.{module}" for layer in layers]
    buffers = {f"{block}.bias": mask.copy() for block in blocks}
    buffers |= {f"{block}.masked_bias": np.array(-1e4, np.float32) for block in blocks}
    if kind == "gpt_neox":
        buffers |= {f"{block}.rotary_emb.inv_freq": np.ones(2, np.float32) for block in blocks}
    save_file(tensors | buffers, path, {"format": "pt"})
    index = folder / "model.safetensors.index.json"
    value = json.loads(index.read_text())
    value["weight_map"] |= {name: path.name for name in buffers}
    write_json(index, value)
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"architectures": [CLASSES[kind][1].__name__]})


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def make(name, fixture, out):
    folder = out / name
    # A hash of what tinyloom saved stays: check_saved.py owns it.
    for old in folder.glob("*"):
        if old.name != "saved.sha256":
            old.unlink()
    dtype = fixture.get("dtype", torch.float32)
    config_class, model_class = classes(fixture["config"])
    model = model_class(hf_config(fixture["config"]))
    fill(model, fixture["seed"])
    saved = model.to(dtype)
    if fixture.get("bare"):
        saved = model.transformer
        saved.config.architectures = [model_class.__name__]
    saved.save_pretrained(folder, max_shard_size=fixture.get("max_shard_size", "1GB"))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if fixture.get("bare") or fixture.get("buffers"):
        with_buffers(folder, fixture["config"]["model_type"])
    write_json(folder / "config.v4.json", v4_config(fixture["config"], dtype))

    # Read back, so that the oracle is of the bytes on disk; a cast model keeps a cast RoPE table.
    model, info = model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    # Buffers that transformers no longer knows by name.
    known = (".masked_bias", ".attention.bias", ".rotary_emb.inv_freq")
    info["unexpected_keys"] = {k for k in info["unexpected_keys"] if not k.endswith(known)}
    assert not any(info.values()), info
    v4 = config_class.from_pretrained(folder / "config.v4.json")
    own = getattr(model.config, "rope_parameters", None)
    assert getattr(v4, "rope_parameters", None) == own, v4
    write_json(folder / "greedy.json", greedy(model, fixture))
    if dtype == torch.float32:
        oracle, losses = training_oracle(model, fixture)
        write_json(folder / "losses.json", losses)
        print(name, json.dumps(losses["float32_noise"]))
    else:
        oracle = logits_oracle(model, fixture)
    arrays = {k: np.ascontiguousarray(v.numpy()) for k, v in oracle.items()}
    for key, value in zip(("tokens", "targets", "documents"), make_batch(fixture)):
        arrays[key] = value.numpy().astype(np.uint32)
    save_file(arrays, folder / "oracle.safetensors")
    for path in sorted(folder.iterdir()):
        print(f"  {path.stat().st_size:8} {name}/{path.name}")


def check_versions():
    """Ends the program unless the packages are those that wrote the fixtures."""
    for line in (HERE / "requirements.txt").read_text().splitlines():
        package, _, wanted = line.partition("==")
        if wanted and version(package) != wanted:
            sys.exit(f"{package} is {version(package)}: the fixtures are made with {wanted}")


def prepared(*folder):
    """The same numbers in each run, and the folder to write to: that of the command line, or one of fixtures/."""
    check_versions()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.joinpath("fixtures", *folder)


def asked(fixtures):
    """The fixtures that the command line names behind the folder, or all."""
    unknown = set(sys.argv[2:]) - set(fixtures)
    if unknown:
        sys.exit(f"there is no fixture {', '.join(sorted(unknown))}")
    return {name: fixture for name, fixture in fixtures.items() if name in (sys.argv[2:] or fixtures)}


def write_names(path, script, constant, fixtures):
    """The list of a folder's fixtures, which the tests read."""
    names = "".join(f'  "{name}",\n' for name in fixtures)
    words = f"// Written by {script}: the files of this folder.\n"
    path.write_text(f"{words}export const {constant} = [\n{names}];\n")


def main():
    out = prepared()
    for name, fixture in asked(FIXTURES).items():
        (out / name).mkdir(parents=True, exist_ok=True)
        make(name, fixture, out)
    write_names(out / "names.mjs", "make_fixtures.py", "MODELS", FIXTURES)


if __name__ == "__main__":
    main()
