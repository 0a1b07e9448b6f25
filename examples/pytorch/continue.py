"""Goes on in PyTorch with a run of tinyloom, on one process or sharded over several with FSDP.

    torchrun --nproc-per-node 2 continue.py RUN DATASET --steps 100 --save OUT

RUN      a folder with what trainer.save() gave: config.json, model.safetensors, optimizer.safetensors
         and trainer_state.json.
DATASET  a folder with what dataset.save() gave: dataset.json and tokens.bin.

Each step takes the next windows of the tokens, so many per process. Weights, AdamW's moments and the
learning-rate schedule go on where tinyloom stopped. It needs torch 2.6, transformers and safetensors.
"""

import argparse
import json
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import AutoModelForCausalLM


def learning_rate(options, step):
    """The learning rate of a step, counted from 0, as tinyloom has it."""
    peak, warmup, total = options["learningRate"], options["warmupSteps"], options["totalSteps"]
    low = options["minLearningRate"]
    low = peak / 10 if low is None else low
    if step < warmup:
        return peak * (step + 1) / warmup
    if options["schedule"] == "constant" or total is None:
        return peak
    progress = 1.0 if step >= total else min((step - warmup) / max(total - warmup - 1, 1), 1.0)
    if options["schedule"] == "linear":
        return peak + (low - peak) * progress
    return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * progress))


def updates_made(state):
    """The updates that AdamW has made: a step whose loss was not finite made none."""
    kept = torch.tensor(state["optimizer"][1], dtype=torch.int64).to(torch.int32).view(torch.float32)
    rest = 1 - kept.item()  # beta2 to the power of the updates
    # Beyond some hundred updates a float no longer tells them apart.
    if rest > 1e-3:
        return round(math.log(rest) / math.log(state["options"]["beta2"]))
    return state["progress"]["step"]


def adamw(model, folder, state):
    """AdamW with the moments of optimizer.safetensors, sharded as the parameters are."""
    options = state["options"]
    parameters = dict(model.named_parameters())
    decayed = [p for p in parameters.values() if p.ndim > 1]
    others = [p for p in parameters.values() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": options["weightDecay"]},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=options["learningRate"],
        betas=(options["beta1"], options["beta2"]),
        eps=options["epsilon"],
    )
    count = torch.tensor(float(updates_made(state)))
    with safe_open(folder / "optimizer.safetensors", "pt") as file:
        for name, parameter in parameters.items():
            own = {"step": count.clone()}
            for moment in ("exp_avg", "exp_avg_sq"):
                whole = file.get_tensor(f"{name}.{moment}").to(parameter.device)
                own[moment] = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
            optimizer.state[parameter] = own
    return optimizer


def read_tokens(folder):
    """The tokens of a saved dataset."""
    width = json.loads((folder / "dataset.json").read_text())["width"]
    kind = {1: torch.uint8, 2: torch.uint16, 4: torch.int32}[width]
    return torch.frombuffer(bytearray((folder / "tokens.bin").read_bytes()), dtype=kind)


def windows(tokens, first, count, length):
    """Inputs and targets of `count` windows from the window `first` on; the text begins again at its end."""
    most = (len(tokens) - 1) // length
    starts = [(first + i) % most * length for i in range(count)]
    rows = torch.stack([tokens[start : start + length + 1] for start in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser(description="Go on in PyTorch with a run of tinyloom.")
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8, help="windows per process and step")
    parser.add_argument("--first", type=int, default=0, help="the window to begin with")
    parser.add_argument("--save", type=Path, help="folder for the model, as transformers saves it")
    args = parser.parse_args()

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(kind, (world,))

    model = AutoModelForCausalLM.from_pretrained(args.run, dtype=torch.float32).to(kind)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.train()
    state = json.loads((args.run / "trainer_state.json").read_text())
    if state["options"].get("lastLayers") is not None:
        raise SystemExit("this run trained its last layers alone; this script trains every weight")
    optimizer = adamw(model, args.run, state)
    options, done = state["options"], state["progress"]["step"]
    tokens = read_tokens(args.dataset)

    for step in range(args.steps):
        first = args.first + (step * world + rank) * args.batch
        inputs, targets = windows(tokens, first, args.batch, args.sequence_length)
        logits = model(inputs.to(kind), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.to(kind).flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options["maxGradNorm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, done + step)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean)
        norm = norm.full_tensor().item()
        if rank == 0:
            print(f"step {done + step + 1}: loss {mean.item() / world:.7f}, norm {norm:.5f}", flush=True)

    if args.save:
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=whole)
        if rank == 0:
            model.save_pretrained(args.save, state_dict=weights)
    # A process that ends while another still writes may end with an error.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
