"""python3 bench/pytorch_prompts.py [PART OF A ROW'S NAME …] [--rounds 20] [--out FOLDER]

Prompts of PyTorch on this machine's CUDA GPU, at the sizes of `node bench/compare.mjs`: random weights, transformers'
models, scaled dot-product attention, compiled, the whole prompt in one CUDA graph. A time is from the prompt's tokens
on the CPU to the first token there, as compare.mjs measures it. No cache is filled.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch
import transformers

import pytorch_results

ROOT = pathlib.Path(__file__).resolve().parent
CONFIGS = json.loads((ROOT / "configs.json").read_text())
# config, tokens, dtype.
PROMPTS = [
    ("SmolLM2-135M", 512, "float32"),
    ("SmolLM2-135M", 512, "float16"),
    ("Qwen3-0.6B", 512, "float16"),
    ("Qwen3-0.6B", 4000, "float16"),
]


def first_token_of(of, tokens, dtype):
    """What reads a prompt and gives the token that follows it."""
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")
    torch._dynamo.reset()
    made = transformers.AutoConfig.for_model(**CONFIGS[of]["config"])
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="sdpa")
    model.to("cuda", dtype).eval()
    ids = torch.zeros(1, tokens, dtype=torch.long, device="cuda")

    @torch.compile
    def next_token(ids):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        return model.lm_head(hidden[:, -1]).argmax(-1)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            next_token(ids)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token = next_token(ids)

    def read(prompt):
        ids.copy_(prompt)
        graph.replay()
        return token.item()

    return read


@torch.no_grad()
def measured(of, tokens, dtype, rounds):
    read = first_token_of(of, tokens, getattr(torch, dtype))
    vocabulary = CONFIGS[of]["config"]["vocab_size"]
    times = []
    for _ in range(rounds + 5):
        prompt = torch.randint(vocabulary, (1, tokens))
        began = time.perf_counter()
        read(prompt)
        times.append((time.perf_counter() - began) * 1000)
    times = times[5:]
    row = {
        "name": f"prompt of {tokens}, {of} {dtype}",
        "tokens": tokens,
        "milliseconds": statistics.median(times),
        "rounds": times,
    }
    print(f"{row['name']}: {row['milliseconds']:.2f} ms", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results")
    options = parser.parse_args()
    chosen = [
        (of, tokens, dtype)
        for of, tokens, dtype in PROMPTS
        if not options.names or any(part in f"{of} {dtype} {tokens}" for part in options.names)
    ]
    rows = [measured(*prompt, options.rounds) for prompt in chosen]
    pytorch_results.write(options.out, "prompts", rows)


main()
