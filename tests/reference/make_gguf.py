"""Writes a GGUF file with the gguf package: a small Llama whose matrices are of every type, and beside it the weights
that the package makes of them, in the layout of transformers.

python make_gguf.py FOLDER
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

HIDDEN, FEED, HEADS, KV_HEADS, VOCABULARY = 256, 512, 4, 2, 64
HEAD = HIDDEN // HEADS
TYPES = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "F16", "BF16", "F32"]
# Where blocks of types that the package does not write have halves.
HALVES = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
random = np.random.default_rng(7)


def made(name, shape):
    """A matrix in a type: its blocks, and what they stand for."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if name in HALVES:
        blocks = random.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
        for at in HALVES[name]:
            halves = random.normal(0, 1e-3, blocks.shape[:2]).astype(np.float16)
            blocks[..., at : at + 2] = halves.view(np.uint8).reshape(*blocks.shape[:2], 2)
        blocks = blocks.reshape(shape[0], -1)
    else:
        values = random.normal(0, 0.05, shape).astype(np.float32)
        blocks = values if name == "F32" else quantize(values, kind)
        if name == "F16":
            blocks = values.astype(np.float16)
        # A scale that is no scale of the largest value, as files with an importance matrix have.
        if name in ("Q4_0", "Q5_0", "Q8_0"):
            each = blocks.reshape(shape[0], -1, size)
            each[..., 2:] = random.integers(0, 256, each[..., 2:].shape, dtype=np.uint8)
    return blocks, np.ascontiguousarray(dequantize(blocks, kind), np.float32), kind


def unpermuted(values, heads):
    """Rows of queries or keys in the order of transformers."""
    rows, columns = values.shape
    back = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
    return np.ascontiguousarray(back.reshape(rows, columns))


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_name("Every type")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(2)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    writer.add_rope_dimension_count(HEAD)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")
    writer.add_eos_token_id(5)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 7)
    checkpoint, types = {}, {}

    def matrix(own, name, shape, kind, heads=None):
        blocks, values, number = made(kind, shape)
        writer.add_tensor(own, blocks, raw_dtype=number)
        types[name] = kind
        checkpoint[name] = unpermuted(values, heads) if heads else values

    def norm(own, name):
        values = random.normal(1, 0.1, HIDDEN).astype(np.float32)
        writer.add_tensor(own, values)
        checkpoint[name] = values

    kinds = iter(TYPES * 2)
    matrix("token_embd.weight", "model.embed_tokens.weight", (VOCABULARY, HIDDEN), next(kinds))
    for layer in range(2):
        to, at = f"model.layers.{layer}", f"blk.{layer}"
        kv = HEAD * KV_HEADS
        norm(f"{at}.attn_norm.weight", f"{to}.input_layernorm.weight")
        matrix(f"{at}.attn_q.weight", f"{to}.self_attn.q_proj.weight", (HIDDEN, HIDDEN), next(kinds), HEADS)
        matrix(f"{at}.attn_k.weight", f"{to}.self_attn.k_proj.weight", (kv, HIDDEN), next(kinds), KV_HEADS)
        matrix(f"{at}.attn_v.weight", f"{to}.self_attn.v_proj.weight", (kv, HIDDEN), next(kinds))
        matrix(f"{at}.attn_output.weight", f"{to}.self_attn.o_proj.weight", (HIDDEN, HIDDEN), next(kinds))
        norm(f"{at}.ffn_norm.weight", f"{to}.post_attention_layernorm.weight")
        matrix(f"{at}.ffn_gate.weight", f"{to}.mlp.gate_proj.weight", (FEED, HIDDEN), next(kinds))
        matrix(f"{at}.ffn_up.weight", f"{to}.mlp.up_proj.weight", (FEED, HIDDEN), next(kinds))
        matrix(f"{at}.ffn_down.weight", f"{to}.mlp.down_proj.weight", (HIDDEN, FEED), next(kinds))
    norm("output_norm.weight", "model.norm.weight")
    matrix("output.weight", "lm_head.weight", (VOCABULARY, HIDDEN), next(kinds))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(checkpoint, folder / "model.safetensors")
    (folder / "types.json").write_text(json.dumps(types))


main(Path(sys.argv[1]))
