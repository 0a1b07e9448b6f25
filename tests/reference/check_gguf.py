"""Compares GGUF files that tinyloom wrote with what the `gguf` package makes of the same weights.

    python check_gguf.py FOLDER

FOLDER has NAME.json and NAME.safetensors, as `model.save()` writes a model's config and weights, and
NAME-TYPE.gguf of the same model for each type. Names come from the package's own map of tensor names, blocks
from its own quantizer. Every tensor must have the same name, shape, type and bytes.
"""

import json
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
}


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """Llama's rows of queries or keys in the order of llama.cpp."""
    half = weights.shape[0] // heads // 2
    turned = weights.reshape(heads, 2, half, *weights.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(turned).reshape(weights.shape)


def expected(config: dict, weights: dict, kind: str) -> dict:
    """Each tensor's type, shape and bytes, by llama.cpp's name."""
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    made = {}
    tied = "lm_head.weight" not in weights
    for name, tensor in weights.items():
        if architecture == gguf.MODEL_ARCH.LLAMA and ".q_proj." in name:
            tensor = permuted(tensor, config["num_attention_heads"])
        if architecture == gguf.MODEL_ARCH.LLAMA and ".k_proj." in name:
            tensor = permuted(tensor, config["num_key_value_heads"])
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own, f"gguf has no name for {name}"
        chosen = TYPES[kind]
        head = own == ("token_embd.weight" if tied else "output.weight")
        if kind == "q4_0" and head:
            chosen = Type.Q8_0
        if tensor.ndim < 2 or own.endswith("_norm.weight"):
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
    positions = min(config["max_position_embeddings"], config.get("sliding_window") or 1 << 30)
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
        gguf.Keys.Rope.DIMENSION_COUNT: config["head_dim"],
    }.items():
        found = value(key.format(arch=name))
        assert found == wanted, f"{key}: {found}, not {wanted}"
    for key, wanted in {
        gguf.Keys.Attention.LAYERNORM_RMS_EPS: config["rms_norm_eps"],
        gguf.Keys.Rope.FREQ_BASE: config["rope_theta"],
    }.items():
        found = value(key.format(arch=name))
        assert np.float32(found) == np.float32(wanted), f"{key}: {found}, not {wanted}"
    tokens = value(gguf.Keys.Tokenizer.LIST)
    kinds = value(gguf.Keys.Tokenizer.TOKEN_TYPE)
    assert len(tokens) == len(kinds) == config["vocab_size"], len(tokens)
    # The tests' models have three ids that no text has.
    assert kinds[-3:] == [gguf.TokenType.UNUSED] * 3 and kinds[-4] != gguf.TokenType.UNUSED, kinds[-5:]


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
    config = json.loads((path.parent / f"{name}.json").read_text())
    weights = load_file(path.parent / f"{name}.safetensors")
    reader = gguf.GGUFReader(path)
    check_keys(reader, config, kind)
    tensors = list(reader.tensors)
    if config["rope_parameters"]["rope_type"] == "llama3":
        factors = tensors.pop(0)
        assert factors.name == "rope_freqs.weight", factors.name
        check_factors(factors.data, config)
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
