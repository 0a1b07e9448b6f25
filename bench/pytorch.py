"""python3 bench/pytorch.py [PART OF A ROW'S NAME …] [--steps 20] [--out FOLDER]

Training steps of PyTorch on this machine's CUDA GPU, at the sizes that run.mjs, finetune.mjs and nanogpt.mjs measure:
random weights, transformers' models, scaled dot-product attention, fused AdamW. Times are of steps queued one after
the other, in three rounds; a step's loss is not read back.
"""

import argparse
import gc
import json
import pathlib
import statistics
import subprocess
import time

import torch
import transformers

import pytorch_results

ROOT = pathlib.Path(__file__).resolve().parent

CONFIGS = json.loads((ROOT / "configs.json").read_text())

# name of the row and of its config, documents.
SHAPES = [
    ("Qwen3-0.6B, whole", "Qwen3-0.6B", 1),
    ("Llama-12x768, whole", "Llama-12x768", 1),
    ("nanoGPT", "nanoGPT", CONFIGS["nanoGPT"]["documents"]),
    ("seed", "seed", 1),
    ("seed x 8", "seed", 8),
]
# name, precision of f32 products, dtype of autocast, whether the model is compiled.
MODES = [
    ("f32", "highest", None, False),
    ("f32 compiled", "highest", None, True),
    ("TF32 compiled", "high", None, True),
    ("bf16 compiled", "high", torch.bfloat16, True),
]
ROUNDS = 3


def training_of(config, documents, tokens, dtype, compiled):
    """What does one step."""
    torch.manual_seed(1)
    made = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="sdpa")
    model.to("cuda", torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(config["vocab_size"], (documents, tokens + 1), device="cuda")

    def loss_of(inputs, targets):
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            logits = model(input_ids=inputs, use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    loss = torch.compile(loss_of) if compiled else loss_of

    def step():
        loss(ids[:, :-1], ids[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    # Every weight once, also where two parameters share it.
    return step, sum(weight.numel() for weight in model.parameters())


def milliseconds_of(step, steps):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1000 / steps


def measured(shape, mode, steps):
    name, of, documents = shape
    config, tokens = CONFIGS[of]["config"], CONFIGS[of]["tokens"]
    mode_name, precision, dtype, compiled = mode
    torch.set_float32_matmul_precision(precision)
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step, parameters = training_of(config, documents, tokens, dtype, compiled)
    for _ in range(5):
        step()
    times = [milliseconds_of(step, steps) for _ in range(ROUNDS)]
    median = statistics.median(times)
    row = {
        "name": name,
        "mode": mode_name,
        "parameters": parameters,
        "tokens": documents * tokens,
        "milliseconds": median,
        "rounds": times,
        "teraflopsPerSecond": 6 * parameters * documents * tokens / median * 1e-9,
        "peakGpuBytes": torch.cuda.max_memory_allocated(),
    }
    print(f"{name}, {mode_name}: {median:.1f} ms, {row['teraflopsPerSecond']:.1f} TFLOP/s", flush=True)
    return row


def driver():
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results")
    options = parser.parse_args()
    chosen = [
        (shape, mode)
        for shape in SHAPES
        for mode in MODES
        if not options.names or any(part in f"{shape[0]}, {mode[0]}" for part in options.names)
    ]
    rows = [measured(shape, mode, options.steps) for shape, mode in chosen]
    pytorch_results.write(options.out, "steps", rows, driver=driver())


main()
