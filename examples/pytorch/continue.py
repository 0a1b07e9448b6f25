"""Goes on in PyTorch with a run of tinyloom: in one process, or sharded over several with FSDP.

    python continue.py RUN DATASET --steps 100 --save OUT
    torchrun --nproc-per-node 2 continue.py RUN DATASET --steps 100 --save OUT

RUN      a folder with what trainer.save() gave: of a model, or of an adapter (LoRA), which PEFT trains
         on the model that --base names.
DATASET  a folder with what dataset.save() gave: one text, documents or conversations.

Each step takes the batches that tinyloom would take next, and learns the same of their tokens.
Several processes share a step's documents. Weights, AdamW's moments and the learning-rate schedule go
on where tinyloom stopped. It needs torch 2.6, transformers, safetensors, numpy, and PEFT for adapters.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

IGNORED = -100
MOMENTS = ("exp_avg", "exp_avg_sq")
# The rates of dropout in the configs of the families.
DROPOUT = {
    "embedding": ("embd_pdrop", "embed_dropout", "embedding_dropout", "hidden_dropout"),
    "attention": ("attn_pdrop", "attention_dropout"),
    "residual": ("resid_pdrop", "resid_dropout", "hidden_dropout"),
}


# What tinyloom draws: random.rs, data/dataset.rs and data/packed.rs in crates/model/src.


def philox(counter, key):
    """A block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC11): four words of four and two."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k, second & 0xFFFFFFFF, (first >> 32) ^ d ^ m, first & 0xFFFFFFFF
        k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def words(number):
    """The low and the high word of 64 bits."""
    return number & 0xFFFFFFFF, number >> 32


def below(low, high, bound):
    """A whole number below the bound, of 64 random bits."""
    return ((high << 32 | low) * bound) >> 64


class Data:
    """A saved dataset, and the batches of a trainer."""

    def __init__(self, folder, options):
        about = json.loads((folder / "dataset.json").read_text())
        kind = {1: np.uint8, 2: "<u2", 4: "<u4"}[about["width"]]
        self.tokens = np.fromfile(folder / "tokens.bin", kind).astype(np.int64)
        own = about["options"]
        self.start = own.get("startTokens", [])
        self.most = options["tokensPerStep"]
        turned = words(options["seed"])
        self.seed = own.get("seed", 0) ^ (turned[0] << 32 | turned[1])
        share = own.get("validationFraction", 0.1)
        total = len(self.tokens)
        wanted = total - int(total * share)
        self.starts = None
        if "documents" in about:
            self.starts = np.fromfile(folder / "documents.bin", "<u4").astype(np.int64).tolist()
            trained = sum(start < wanted for start in self.starts)
            self.trained = trained - 1 if share > 0 and trained == len(self.starts) else trained
            self.starts.append(total)
            longest = max(b - a - 1 for a, b in zip(self.starts, self.starts[1:]))
            length = longest if about.get("chats") else min(1024, longest)
        else:
            self.train = wanted
            length = min(128, max(self.train, 2) - 1)
        self.targets = self.tokens.copy()
        if "learned" in about:
            self.targets[:] = IGNORED
            for begin, end in np.fromfile(folder / "learned.bin", "<u4").reshape(-1, 2):
                self.targets[begin:end] = self.tokens[begin:end]
        self.length = min(own.get("sequenceLength", length), self.most)
        self.walk = self.packs() if self.starts else None
        self.drawn = 0

    def batch(self, index):
        """The inputs and targets of each document of batch number `index`; the numbers ascend."""
        if not self.starts:
            return [self.window(*piece) for piece in self.windows(index)]
        while self.drawn <= index:
            pieces, self.drawn = next(self.walk), self.drawn + 1
        return [self.piece(*piece) for piece in pieces]

    def windows(self, index):
        """Windows of one text: where they begin, and how long they are."""
        for at in range(0, self.most, self.length):
            length = min(self.length, self.most - at)
            counter = (*words(index), 0x64617461, at // self.length)
            low, high, *_ = philox(counter, words(self.seed))
            yield below(low, high, self.train - length), length

    def window(self, at, length):
        inputs, targets = self.piece(at, length)
        if length > len(self.start):
            inputs[: len(self.start)] = self.start
            targets[: len(self.start)] = IGNORED
        return inputs, targets

    def piece(self, at, length):
        return self.tokens[at : at + length].copy(), self.targets[at + 1 : at + length + 1].copy()

    def pieces(self, document):
        """The pieces of a document that have something to learn."""
        last = self.starts[document + 1] - 1
        for at in range(self.starts[document], last, self.length):
            length = min(self.length, last - at)
            if (self.targets[at + 1 : at + length + 1] != IGNORED).any():
                yield at, length

    def packs(self):
        """The batches of shuffled documents, epoch after epoch."""
        pack, used, epoch = [], 0, 0
        while True:
            for document in self.shuffled(epoch):
                for piece in self.pieces(document):
                    if used + piece[1] > self.most:
                        yield pack
                        pack, used = [], 0
                    pack.append(piece)
                    used += piece[1]
            epoch += 1

    def shuffled(self, epoch):
        order = list(range(self.trained))
        for i in range(len(order) - 1, 0, -1):
            low, high, *_ = philox((*words(epoch), 0x6F726465, i), words(self.seed))
            j = below(low, high, i + 1)
            order[i], order[j] = order[j], order[i]
        return order


# How tinyloom trains: src/schedule.rs and src/session/train.


def learning_rate(options, step):
    """The learning rate of a step, counted from 0."""
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


def read_state(folder, steps):
    """trainer_state.json, with the schedule's length as a run of so many steps makes it."""
    if not (folder / "trainer_state.json").exists():
        raise SystemExit(f"{folder} has no trainer_state.json: give a folder with what trainer.save() gave")
    state = json.loads((folder / "trainer_state.json").read_text())
    options, progress = state["options"], state["progress"]
    optimizer = options.get("optimizer", "adamw")
    if optimizer != "adamw":
        raise SystemExit(f"this run's optimizer is {optimizer}; this script goes on with adamw alone")
    if progress.get("microStep"):
        raise SystemExit("this run was saved in the middle of an accumulation; save it between two steps")
    if options.get("ema") is not None:
        raise SystemExit("this run keeps an average of its weights (ema), and this script keeps none")
    last = progress["step"] + steps
    if not state.get("totalStepsGiven") and (options["totalSteps"] or progress["step"]) < last:
        options["totalSteps"] = last
    return state


def has_code(folder):
    """Whether the model is computed by the code that tinyloom saves beside it."""
    config = Path(folder) / "config.json"
    return config.exists() and json.loads(config.read_text()).get("model_type") == "tinyloom"


def configured(folder, options):
    """The model's config, with the rates of dropout that the trainer's options have."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=has_code(folder))
    rates = options.get("dropout") or {}
    for place, names in DROPOUT.items():
        rate = rates.get(place) if isinstance(rates, dict) else rates
        if rate is None:
            continue
        own = [name for name in names if hasattr(config, name)]
        if rate and not own:
            raise SystemExit(f"this run leaves out {rate} of what its {place} gives, and transformers' model cannot")
        for name in own:
            setattr(config, name, rate)
    return config


def load(args, options):
    """The model, or the model with the adapter that is trained."""
    run = args.run
    adapter = run / "adapter_config.json"
    folder = run
    if adapter.exists():
        named = json.loads(adapter.read_text()).get("base_model_name_or_path")
        folder = args.base or named
        if not folder:
            raise SystemExit("this run trained an adapter: name the folder of the model under it with --base")
    config = configured(folder, options)
    # Caps of attention's scores are in this form of attention alone.
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    kind = {"attn_implementation": "eager"} if capped else {}
    kind["trust_remote_code"] = has_code(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, **kind)
    if adapter.exists():
        try:
            from peft import PeftModel
        except ImportError:
            raise SystemExit("this run trained an adapter, which takes PEFT: pip install peft") from None
        model = PeftModel.from_pretrained(model, str(run), is_trainable=True)
    return model


def saved_name(name, names):
    """The name of a parameter in tinyloom's files, if it is trained.

    PEFT names its adapter besides, and transformers 5 has another name for GPT-NeoX's head.
    """
    plain = name.replace(".default.", ".")
    for own in (plain, plain.replace("lm_head.", "embed_out.")):
        if f"{own}.{MOMENTS[0]}" in names:
            return own
    return None


def trained(model, folder):
    """The parameters that have moments, by their name in the file; the others are not trained."""
    with safe_open(folder / "optimizer.safetensors", "pt") as file:
        names = set(file.keys())
    found = {}
    for name, parameter in model.named_parameters():
        own = saved_name(name, names)
        parameter.requires_grad_(own is not None)
        if own:
            found[own] = parameter
    if 2 * len(found) != sum(name.endswith(MOMENTS) for name in names):
        raise SystemExit("optimizer.safetensors has moments of tensors that this model does not have")
    return found


def layers(model, count):
    """The model's list of layers, whatever its family calls it."""
    lists = [one for one in model.modules() if isinstance(one, torch.nn.ModuleList)]
    return next(one for one in lists if len(one) == count)


def updates_made(state):
    """The updates that AdamW has made: a step whose loss was not finite made none."""
    kept = torch.tensor(state["optimizer"][1], dtype=torch.int64).to(torch.int32).view(torch.float32)
    rest = 1 - kept.item()  # beta2 to the power of the updates
    # Beyond some hundred updates a float no longer tells them apart.
    if rest > 1e-3:
        return round(math.log(rest) / math.log(state["options"]["beta2"]))
    return state["progress"]["step"]


def adamw(parameters, folder, state):
    """AdamW with the moments of optimizer.safetensors, sharded as the parameters are."""
    options = state["options"]
    decayed = [p for p in parameters.values() if p.ndim > 1]
    others = [p for p in parameters.values() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": options["weightDecay"]}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(
        groups,
        lr=options["learningRate"],
        betas=(options["beta1"], options["beta2"]),
        eps=options["epsilon"],
    )
    count = torch.tensor(float(updates_made(state)))
    with safe_open(folder / "optimizer.safetensors", "pt") as file:
        for name, parameter in parameters.items():
            own = {"step": count.clone()}
            for moment in MOMENTS:
                whole = file.get_tensor(f"{name}.{moment}").to(parameter.device)
                if isinstance(parameter, DTensor):
                    whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
                own[moment] = whole
            optimizer.state[parameter] = own
    return optimizer


def padded(documents, device):
    """Documents as rows: what fills them up stands behind them, where nothing sees it."""
    longest = max((len(inputs) for inputs, _ in documents), default=1)
    rows = torch.zeros(2, max(len(documents), 1), longest, dtype=torch.long)
    rows[1] = IGNORED
    for row, (inputs, targets) in enumerate(documents):
        rows[0, row, : len(inputs)] = torch.from_numpy(inputs)
        rows[1, row, : len(targets)] = torch.from_numpy(targets)
    return rows.to(device)


def nats(logits, targets, options):
    """The sum of what is minimised, over the targets."""
    logits, targets = logits.float().flatten(0, 1), targets.flatten()
    smoothing = options.get("labelSmoothing") or 0.0
    sum_ = cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)
    if options.get("zLoss"):
        counted = targets != IGNORED
        sum_ = sum_ + options["zLoss"] * (logits[counted].logsumexp(-1) ** 2).sum()
    return sum_


def arguments():
    parser = argparse.ArgumentParser(description="Go on in PyTorch with a run of tinyloom.")
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--base", type=Path, help="folder of the model under an adapter")
    parser.add_argument("--save", type=Path, help="folder for the model, as transformers saves it, or for PEFT's adapter")
    return parser.parse_args()


def main():
    args = arguments()
    state = read_state(args.run, args.steps)
    options, done, cursor = state["options"], state["progress"]["step"], state["progress"]["cursor"]
    shared = "RANK" in os.environ  # torchrun started this
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if shared:
        if kind == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if shared else (0, 1)

    torch.manual_seed(options["seed"])  # of dropout, whose masks are not tinyloom's
    model = load(args, options).to(kind).train()
    trained(model, args.run)
    if shared:
        mesh = init_device_mesh(kind, (world,))
        for layer in layers(model, model.config.num_hidden_layers):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    parameters = trained(model, args.run)
    optimizer = adamw(parameters, args.run, state)
    data = Data(args.dataset, options)
    most = math.inf if options["maxGradNorm"] is None else options["maxGradNorm"]
    micro_steps = options["gradientAccumulation"]

    for step in range(done, done + args.steps):
        batches = [data.batch(cursor + i) for i in range(micro_steps)]
        cursor += micro_steps
        counted = sum(int((targets != IGNORED).sum()) for batch in batches for _, targets in batch)
        sum_ = torch.zeros((), device=kind)
        for batch in batches:
            inputs, targets = padded(batch[rank::world], kind)
            part = nats(model(input_ids=inputs, use_cache=False).logits, targets, options)
            (part * world / counted).backward()  # FSDP takes the mean over the processes
            sum_ += part.detach()
        if shared:
            dist.all_reduce(sum_)
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), most)
        norm = (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()
        loss = sum_.item() / counted
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, step)
        if math.isfinite(loss) and math.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step + 1}: loss {loss:.7f}, norm {norm:.7f}", flush=True)

    if args.save:
        save(model, args.save, shared, rank)
    if shared:
        # A process that ends while another still writes may end with an error.
        dist.barrier()
        dist.destroy_process_group()
        # Threads of gloo that outlive the group now and then abort a process that ends in Python's order.
        sys.stdout.flush()
        os._exit(0)


def save(model, folder, shared, rank):
    """The model as transformers saves it, or the adapter as PEFT does."""
    if not shared:
        model.save_pretrained(folder)
        return
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=whole)
    if rank == 0:
        model.save_pretrained(folder, state_dict=weights)


if __name__ == "__main__":
    main()
