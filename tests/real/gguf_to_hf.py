"""Writes the folder of Hugging Face that a GGUF file of a Llama or a Gemma 3 came from.

    python gguf_to_hf.py FILE.gguf FOLDER [--tokenizer FOLDER] [--dither SEED] [--f32]

The weights are the file's, dequantised, and rounded once to float16. So both sides of a comparison have the same.
With --f32 they are not rounded: the folder is then what the GGUF file itself is compared with.

--tokenizer  copies tokenizer.json and tokenizer_config.json from there. Without it they are made of the file's
             tokens and merges, which a file of a byte-level BPE has.
--dither     adds uniform noise of one quantisation step, so that no other four-bit format profits from the
             grid that the file's own format left in the weights.
"""

import argparse
import json
import shutil
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize
from safetensors.numpy import save_file

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OF_FAMILY = {
    "llama": {**LAYER, "ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        **LAYER,
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
# Weights that share a step at least: the shortest run of one scale in any of GGUF's types.
RUN = 16
CONTROL = 3  # the type of a special token


def hf_name(family, name):
    parts = name.removesuffix(".weight").split(".")
    if parts[0] != "blk":
        return f"{TOP[parts[0]]}.weight"
    return f"model.layers.{parts[1]}.{OF_FAMILY[family][parts[2]]}.weight"


def dithered(weights, random):
    """The weights with noise between minus half a step and half a step, which the values themselves tell."""
    runs = weights.reshape(-1, RUN)
    gaps = np.diff(np.sort(runs, axis=1), axis=1)
    # What rounding puts between two equal numbers is no step.
    least = np.abs(runs).max(axis=1, keepdims=True) * 1e-3
    gaps[gaps <= least] = np.inf
    step = gaps.min(axis=1, keepdims=True)
    step[~np.isfinite(step)] = 0
    return (runs + (random.random(runs.shape, np.float32) - 0.5) * step).reshape(weights.shape)


def tensors(reader, family, values, seed, dtype):
    random = np.random.default_rng(seed)
    out = {}
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
        plain = tensor.tensor_type in (
            gguf.GGMLQuantizationType.F32,
            gguf.GGMLQuantizationType.F16,
            gguf.GGMLQuantizationType.BF16,
        )
        if seed is not None and not plain:
            weights = dithered(weights, random)
        name = hf_name(family, tensor.name)
        if family == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            # llama.cpp has the two numbers that turn together beside each other, and transformers half a head apart.
            heads = values["attention.head_count" + ("_kv" if "k_proj" in name else "")]
            pairs = weights.reshape(heads, shape[0] // heads // 2, 2, shape[1])
            weights = pairs.swapaxes(1, 2).reshape(shape)
        if family == "gemma3" and name.endswith("norm.weight"):
            weights = weights - 1  # llama.cpp stores what the norm multiplies by
        out[name] = np.ascontiguousarray(weights.astype(dtype))
    return out


def configs(family, values, ids, weights):
    layers = values["block_count"]
    config = {
        "attention_bias": False,
        **ids,
        "hidden_size": values["embedding_length"],
        "intermediate_size": values["feed_forward_length"],
        "max_position_embeddings": values["context_length"],
        "num_attention_heads": values["attention.head_count"],
        "num_hidden_layers": layers,
        "num_key_value_heads": values["attention.head_count_kv"],
        "rms_norm_eps": float(f"{values['attention.layer_norm_rms_epsilon']:.1g}"),
        "rope_theta": values["rope.freq_base"],
        "torch_dtype": str(weights["model.embed_tokens.weight"].dtype),
        "vocab_size": weights["model.embed_tokens.weight"].shape[0],
        "tie_word_embeddings": "lm_head.weight" not in weights,
    }
    if family == "llama":
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "mlp_bias": False,
            "rope_scaling": None,
            **config,
        }
    # GGUF does not say these: they are those of every Gemma 3.
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "head_dim": values["attention.key_length"],
        "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None,
        "sliding_window": values["attention.sliding_window"],
        "layer_types": [
            "full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)
        ],
        **config,
    }


def tokenizer(fields, texts, ids):
    """tokenizer.json and tokenizer_config.json of the byte-level BPE of SmolLM2."""
    kind = (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise SystemExit(f"no tokenizer is made of one of {kind}: name its folder in --tokenizer")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    types = fields["tokenizer.ggml.token_type"]
    added = [
        {"id": i, "content": texts[i], **flags, "special": True}
        for i, type_ in enumerate(types)
        if type_ == CONTROL
    ]
    level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    split = [
        {"type": "Digits", "individual_digits": True},
        {**level, "add_prefix_space": False},
    ]
    whole = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split},
        "post_processor": None,
        "decoder": {**level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": texts[ids["bos_token_id"]],
        "eos_token": texts[ids["eos_token_id"]],
        "pad_token": texts[ids["pad_token_id"]],
        "clean_up_tokenization_spaces": False,
        "chat_template": fields.get("tokenizer.chat_template"),
    }
    return {"tokenizer.json": whole, "tokenizer_config.json": config}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--dither", type=int)
    parser.add_argument("--f32", action="store_true")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.file)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    family = fields["general.architecture"]
    if family not in OF_FAMILY:
        raise SystemExit(f"{args.file} is a {family}; there is {', '.join(OF_FAMILY)}")
    values = {key.removeprefix(f"{family}."): value for key, value in fields.items()}
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    ids = {key: fields[f"tokenizer.ggml.{name}_token_id"] for key, name in names.items()}
    args.folder.mkdir(parents=True, exist_ok=True)
    dtype = np.float32 if args.f32 else np.float16
    weights = tensors(reader, family, values, args.dither, dtype)
    save_file(weights, args.folder / "model.safetensors", metadata={"format": "pt"})
    written = {
        "config.json": configs(family, values, ids, weights),
        "generation_config.json": ids,
    }
    if args.tokenizer:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(args.tokenizer / name, args.folder / name)
    else:
        written |= tokenizer(fields, fields["tokenizer.ggml.tokens"], ids)
    for name, value in written.items():
        text = json.dumps(value, indent=1, ensure_ascii=False)
        (args.folder / name).write_text(text, encoding="utf-8")


main()
