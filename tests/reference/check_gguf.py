"""Compares GGUF files that tinyloom wrote with what the `gguf` package makes of the same weights.

    python check_gguf.py FOLDER

FOLDER has NAME.json and NAME.safetensors, as `model.save()` writes a model's config and weights, and
NAME-TYPE.gguf of the same model for each type. Names come from the package's own map of tensor names, blocks
from its own quantizer. Every tensor must have the same name, shape, type and bytes.
"""

import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

TYPES = {"f32": Type.F32, "f16": Type.F16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0}
FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma": gguf.MODEL_ARCH.GEMMA,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "stablelm": gguf.MODEL_ARCH.STABLELM,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "gpt2": gguf.MODEL_ARCH.GPT2,
    "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
}
# Llama's names of fields, and GPT-2's.
GPT2_FIELDS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}


def read_config(path: Path) -> dict:
    """A model's config, with Llama's names of the fields that every family has."""
    config = json.loads(path.read_text())
    if config["model_type"] == "gpt2":
        config |= {name: config[own] for name, own in GPT2_FIELDS.items()}
        config["intermediate_size"] = config["n_inner"] or 4 * config["n_embd"]
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    return config


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """Llama's rows of queries or keys in the order of llama.cpp."""
    half = weights.shape[0] // heads // 2
    turned = weights.reshape(heads, 2, half, *weights.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(turned).reshape(weights.shape)


def laid_out(config: dict, name: str, own: str, tensor: np.ndarray) -> np.ndarray:
    """A tensor of the checkpoint as `convert_hf_to_gguf.py` writes it."""
    architecture = ARCHITECTURES[config["model_type"]]
    pairs = architecture in (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.SMOLLM3, gguf.MODEL_ARCH.GRANITE)
    if pairs and ".q_proj." in name:
        return permuted(tensor, config["num_attention_heads"])
    if pairs and ".k_proj." in name:
        return permuted(tensor, config["num_key_value_heads"])
    if config["model_type"].startswith("gemma") and own.endswith("_norm.weight"):
        return tensor + np.float32(1)
    if architecture == gguf.MODEL_ARCH.GPT2 and re.search(r"\.c_(attn|proj|fc)\.weight$", name):
        return np.ascontiguousarray(tensor.T)
    if ".query_key_value." in name:
        split = tensor.reshape(config["num_attention_heads"], 3, config["head_dim"], -1)
        return np.concatenate([split[:, part] for part in range(3)]).reshape(tensor.shape)
    return tensor


def expected(config: dict, weights: dict, kind: str) -> dict:
    """Each tensor's type, shape and bytes, by llama.cpp's name."""
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    made = {}
    tied = not {"lm_head.weight", "embed_out.weight"} & set(weights)
    for name, tensor in weights.items():
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own, f"gguf has no name for {name}"
        tensor = laid_out(config, name, own, tensor)
        chosen = TYPES[kind]
        head = own == ("token_embd.weight" if tied else "output.weight")
        if kind == "q4_0" and head:
            chosen = Type.Q8_0
        if tensor.ndim < 2 or own.endswith("_norm.weight") or own == "position_embd.weight":
            chosen = Type.F32
        try:
            data = gguf.quants.quantize(tensor, chosen)
        except gguf.QuantError:
            chosen = Type.F16
            data = gguf.quants.quantize(tensor, chosen)
        made[own] = (chosen, tensor.shape, data.tobytes())
    return made


def check_keys(reader: gguf.GGUFReader, config: dict, kind: str) -> None:
    """The metadata that every model has."""
    value = lambda key: reader.get_field(key).contents()
    name = value("general.architecture")
    assert name == gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config["model_type"]]], name
    positions = config["max_position_embeddings"]
    if config["model_type"] in ("mistral", "phi3"):
        positions = min(positions, config["sliding_window"] or positions)
    for key, wanted in {
        gguf.Keys.General.FILE_TYPE: FILE_TYPES[kind],
        gguf.Keys.General.QUANTIZATION_VERSION: gguf.GGML_QUANT_VERSION,
        gguf.Keys.LLM.BLOCK_COUNT: config["num_hidden_layers"],
        gguf.Keys.LLM.CONTEXT_LENGTH: positions,
        gguf.Keys.LLM.EMBEDDING_LENGTH: config["hidden_size"],
        gguf.Keys.LLM.FEED_FORWARD_LENGTH: config["intermediate_size"],
        gguf.Keys.LLM.VOCAB_SIZE: config["vocab_size"],
        gguf.Keys.Attention.HEAD_COUNT: config["num_attention_heads"],
        gguf.Keys.Attention.HEAD_COUNT_KV: config["num_key_value_heads"],
        gguf.Keys.Attention.KEY_LENGTH: config["head_dim"],
        gguf.Keys.Attention.VALUE_LENGTH: config["head_dim"],
    }.items():
        found = value(key.format(arch=name))
        assert found == wanted, f"{key}: {found}, not {wanted}"
    check_own_keys(reader, config, name)
    tokens = value(gguf.Keys.Tokenizer.LIST)
    kinds = value(gguf.Keys.Tokenizer.TOKEN_TYPE)
    assert len(tokens) == len(kinds) == config["vocab_size"], len(tokens)
    # The tests' models have three ids that no text has.
    assert kinds[-3:] == [gguf.TokenType.UNUSED] * 3 and kinds[-4] != gguf.TokenType.UNUSED, kinds[-5:]


def own_keys(config: dict) -> dict:
    """The metadata that some families have; None for a key that is to be absent."""
    kind, keys = config["model_type"], gguf.Keys
    wanted = {keys.Attention.LAYERNORM_EPS: None, keys.Attention.LAYERNORM_RMS_EPS: config.get("rms_norm_eps")}
    if kind == "gpt2":
        wanted |= {keys.Rope.FREQ_BASE: None, keys.Rope.DIMENSION_COUNT: None}
    else:
        wanted |= {keys.Rope.FREQ_BASE: config.get("rope_theta"), keys.Rope.DIMENSION_COUNT: config["head_dim"]}
    if kind in ("gpt2", "gpt_neox", "stablelm"):
        epsilon = "layer_norm_epsilon" if kind == "gpt2" else "layer_norm_eps"
        wanted |= {keys.Attention.LAYERNORM_EPS: config[epsilon], keys.Attention.LAYERNORM_RMS_EPS: None}
    if kind == "gpt_neox":
        wanted |= {
            keys.Rope.FREQ_BASE: config["rotary_emb_base"],
            keys.Rope.DIMENSION_COUNT: int(config["rotary_pct"] * config["head_dim"]),
            keys.LLM.USE_PARALLEL_RESIDUAL: config["use_parallel_residual"],
        }
    if kind in ("phi3", "stablelm"):
        turned = int(config["partial_rotary_factor"] * config["head_dim"])
        wanted |= {keys.Rope.DIMENSION_COUNT: turned}
    if kind == "stablelm":
        wanted |= {keys.LLM.USE_PARALLEL_RESIDUAL: config.get("use_parallel_residual", False)}
    if kind == "phi3":
        wanted |= {
            keys.Attention.SLIDING_WINDOW: config["sliding_window"] or 0,
            keys.Rope.SCALING_ORIG_CTX_LEN: config.get("original_max_position_embeddings", 4096),
        }
    if kind == "granite":
        wanted |= {
            keys.LLM.EMBEDDING_SCALE: config["embedding_multiplier"],
            keys.LLM.RESIDUAL_SCALE: config["residual_multiplier"],
            keys.LLM.LOGIT_SCALE: config["logits_scaling"],
            keys.Attention.SCALE: config["attention_multiplier"],
        }
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        wanted |= {
            keys.Rope.SCALING_TYPE: None if kind == "phi3" else gguf.RopeScalingType.LONGROPE.value,
            keys.Rope.SCALING_ORIG_CTX_LEN: rope["original_max_position_embeddings"],
            keys.Rope.SCALING_ATTN_FACTOR: rope["attention_factor"],
        }
    if kind in ("gemma2", "gemma3_text"):
        types, usual = config["layer_types"], 2 if kind == "gemma2" else 6
        # Layers from one without a window to the next, where llama.cpp would take others.
        period = types.index("full_attention") + 1
        local = config.get("rope_local_base_freq", 10_000)
        wanted |= {
            keys.Attention.SLIDING_WINDOW: config["sliding_window"],
            keys.Attention.SLIDING_WINDOW_PATTERN: None if period == usual else period,
            keys.Rope.FREQ_BASE_SWA: None if local == 10_000 else local,
            keys.LLM.ATTN_LOGIT_SOFTCAPPING: config["attn_logit_softcapping"],
            keys.LLM.FINAL_LOGIT_SOFTCAPPING: config["final_logit_softcapping"],
        }
    return wanted


def check_own_keys(reader: gguf.GGUFReader, config: dict, name: str) -> None:
    for key, wanted in own_keys(config).items():
        field = reader.get_field(key.format(arch=name))
        found = field and field.contents()
        plain = wanted is None or isinstance(wanted, str)
        same = found == wanted if plain else np.float32(found) == np.float32(wanted)
        assert same, f"{key}: {found}, not {wanted}"


def check_factors(data: np.ndarray, config: dict) -> None:
    """What llama.cpp divides Llama 3's angles by, by the definition in the release of Llama 3.1."""
    rope = config["rope_parameters"]
    dim, original = config["head_dim"], rope["original_max_position_embeddings"]
    for at, found in enumerate(data):
        length = 2 * np.pi * config["rope_theta"] ** (2 * at / dim)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if length < original / high:
            wanted = 1.0
        elif length > original / low:
            wanted = rope["factor"]
        else:
            smooth = (original / length - low) / (high - low)
            wanted = 1 / ((1 - smooth) / rope["factor"] + smooth)
        assert abs(found - wanted) <= 1e-6 * wanted, f"factor {at}: {found}, not {wanted}"


def check(path: Path) -> str:
    name, kind = path.stem.rsplit("-", 1)
    config = read_config(path.parent / f"{name}.json")
    weights = load_file(path.parent / f"{name}.safetensors")
    reader = gguf.GGUFReader(path)
    check_keys(reader, config, kind)
    tensors = list(reader.tensors)
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        factors = tensors.pop(0)
        assert factors.name == "rope_freqs.weight", factors.name
        check_factors(factors.data, config)
    if rope.get("rope_type") == "longrope":
        for kind_ in ("LONG", "SHORT"):
            factors = tensors.pop(0)
            own = gguf.TENSOR_NAMES[getattr(gguf.MODEL_TENSOR, f"ROPE_FACTORS_{kind_}")]
            assert factors.name == f"{own}.weight", factors.name
            wanted = np.array(rope[f"{kind_.lower()}_factor"], np.float32)
            assert np.array_equal(factors.data, wanted), f"{own}: {factors.data}"
    wanted = expected(config, weights, kind)
    assert {tensor.name for tensor in tensors} == set(wanted), "other tensors"
    for tensor in tensors:
        type_, shape, data = wanted[tensor.name]
        assert tensor.tensor_type == type_, f"{tensor.name}: {tensor.tensor_type!r}, not {type_!r}"
        # ggml names the dimension that lies together first.
        assert tuple(reversed(tensor.shape.tolist())) == shape, f"{tensor.name}: {tensor.shape}"
        assert tensor.data.tobytes() == data, f"{tensor.name}: other bytes"
    kinds = sorted({tensor.tensor_type.name for tensor in tensors})
    return f"{path.name}: {len(tensors)} tensors as gguf makes them, {' '.join(kinds)}"


if __name__ == "__main__":
    paths = sorted(Path(sys.argv[1]).glob("*.gguf"))
    assert paths, f"no GGUF files in {sys.argv[1]}"
    for path in paths:
        print(check(path))
