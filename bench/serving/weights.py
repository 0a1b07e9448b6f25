"""python3 bench/serving/weights.py FOLDER MODEL [--builder FOLDER] [--small] [--formats fp16,int8,q4f16]

Random weights in the shapes of a model of bench/configs.json, for every library from the same numbers, in
FOLDER/MODEL: config.json, model.safetensors in f16, tokenizer.json, and with --builder (the folder `models` of the
package onnxruntime-genai) onnx/model_FORMAT.onnx as transformers.js reads it. `gguf.mjs` beside this file adds the
GGUF files. With --small two layers and a vocabulary of 2,048.

Each 32 neighbours of a row are whole numbers from -8 to 7 times a power of two, one of them -8. So 4 bits with a scale
for 32 hold them exactly, and so does f16: the rows of 16 and of 4 bits are of one function.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGS = json.loads((ROOT / "configs.json").read_text())
GROUP = 32
BYTES = 256
SMALL = {"num_hidden_layers": 2, "vocab_size": 2048}
PACKED = ["--extra_options", "shared_embeddings=true", f"block_size={GROUP}", "accuracy_level=4"]
# What the builder is asked for, by the name that transformers.js has for the format.
FORMATS = {
    "fp16": ["-p", "fp16", "--extra_options", "shared_embeddings=false"],
    "int8": ["-p", "int8", *PACKED],
    "q4f16": ["-p", "int4", *PACKED],
}


def config_of(name, small):
    config = {**CONFIGS[name]["config"], **(SMALL if small else {})}
    heads = config["num_attention_heads"]
    config.setdefault("head_dim", config["hidden_size"] // heads)
    end = config["vocab_size"] - 1
    kind = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[config["model_type"]]
    return {
        **config,
        "architectures": [kind],
        "hidden_act": "silu",
        "attention_bias": False,
        "torch_dtype": "float16",
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def word(index):
    """A space and letters; what is before the last letter is an earlier word, or the space."""
    letter = chr(ord("a") + index % 26)
    return (word(index // 26 - 1) if index >= 26 else "\u0120") + letter


def tokenizer_of(vocabulary):
    """Bytes, words that each have one split, and the end of a text, as the parts of tokenizer.json."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(BYTES) if byte not in plain]
    of_byte = {byte: chr(byte) for byte in plain}
    of_byte |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    words = [word(index) for index in range(vocabulary - BYTES - 1)]
    tokens = [*(of_byte[byte] for byte in range(BYTES)), *words]
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    level["trim_offsets"] = True
    end = {"id": vocabulary - 1, "content": "<|endoftext|>", "special": True}
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**end, **flags}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": [f"{one[:-1]} {one[-1]}" for one in words],
        },
    }


def tensors_of(config):
    """The weights by name."""
    import torch

    generator = torch.Generator().manual_seed(1)
    hidden, feed, head = (config[key] for key in ["hidden_size", "intermediate_size", "head_dim"])
    queries, keys = (head * config[key] for key in ["num_attention_heads", "num_key_value_heads"])

    def matrix(rows, columns, deviation):
        shape = (rows, columns // GROUP, GROUP)
        codes = torch.randn(shape, generator=generator).mul_(3).round_().clamp_(-7, 7)
        # The largest becomes -8; a sign for each group keeps the mean at zero.
        codes.scatter_(-1, codes.abs().argmax(-1, keepdim=True), -8)
        signs = torch.randint(0, 2, (*shape[:2], 1), generator=generator) * 2 - 1
        scale = 2.0 ** torch.tensor(deviation / 3).log2().round()
        return codes.mul_(signs * scale).view(rows, columns).half()

    def norm(length):
        return (1 + 0.1 * torch.randn(length, generator=generator)).half()

    # The head is the embedding. Bytes and the end are never the likeliest, so that no text ends early.
    embedding = matrix(config["vocab_size"], hidden, 0.04)
    embedding[:BYTES] = 0
    embedding[-1] = 0
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": norm(hidden)}
    for layer in range(config["num_hidden_layers"]):
        shapes = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (feed, hidden),
            "mlp.up_proj": (feed, hidden),
            "mlp.down_proj": (hidden, feed),
        }
        norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
        if config["model_type"] == "qwen3":
            norms |= {"self_attn.q_norm": head, "self_attn.k_norm": head}
        of_layer = {name: matrix(*shape, shape[1] ** -0.5) for name, shape in shapes.items()}
        of_layer |= {name: norm(length) for name, length in norms.items()}
        tensors |= {f"model.layers.{layer}.{name}.weight": one for name, one in of_layer.items()}
    return tensors


def write_checkpoint(folder, config):
    from safetensors.torch import save_file

    def write(name, value):
        (folder / name).write_text(json.dumps(value))

    write("config.json", config)
    end = config["eos_token_id"]
    write("generation_config.json", {"do_sample": False, "bos_token_id": end, "pad_token_id": end})
    write("tokenizer.json", tokenizer_of(config["vocab_size"]))
    special = dict.fromkeys(["bos_token", "eos_token", "unk_token"], "<|endoftext|>")
    write("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", **special})
    save_file(tensors_of(config), folder / "model.safetensors", metadata={"format": "pt"})


def write_onnx(folder, config, builder, kind):
    """Builds the ONNX model of a format, with its weights in one file of the name that transformers.js expects."""
    import onnx

    made = folder / f"making-{kind}"
    name = f"model_{kind}.onnx"
    places = ["-i", folder, "-o", made, "-c", f"{made}-cache"]
    command = [sys.executable, "builder.py", "-e", "webgpu", *places]
    more = [*FORMATS[kind], f"filename={name}", "prune_lm_head=true", "hf_token=false"]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(
        [*command, *more], cwd=builder, env={**os.environ, **offline}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{kind}: {(done.stdout + done.stderr)[-3000:]}")
    model = onnx.load(made / name, load_external_data=False)
    entries = [entry for one in model.graph.initializer for entry in one.external_data]
    places = [entry for entry in entries if entry.key == "location"]
    (place,) = {entry.value for entry in places}
    for entry in places:
        entry.value = f"{name}_data"
    # transformers.js begins with an empty cache, and takes each size that it does not know for 0.
    for value in [*model.graph.input, *model.graph.output]:
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == "kv_cache_dim":
                size.dim_value = config["head_dim"]
    target = folder / "onnx"
    target.mkdir(exist_ok=True)
    onnx.save(model, target / name)
    shutil.move(made / place, target / f"{name}_data")
    shutil.rmtree(made)
    shutil.rmtree(f"{made}-cache", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("model", choices=["SmolLM2-135M", "Qwen3-0.6B"])
    parser.add_argument("--builder", type=pathlib.Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--formats", default=",".join(FORMATS))
    given = parser.parse_args()
    folder = given.folder.resolve() / given.model
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(given.model, given.small)
    began = time.time()
    if not (folder / "model.safetensors").exists():
        write_checkpoint(folder, config)
        print(f"{given.model}: weights after {time.time() - began:.1f} s", flush=True)
    for kind in given.formats.split(",") if given.builder else []:
        write_onnx(folder, config, given.builder, kind)
        print(f"{given.model}: {kind} after {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
