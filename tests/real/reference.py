"""What transformers and PEFT compute of a real model, for tests/real/run.mjs.

    python reference.py logits FOLDER TEXTS OUT    # ids and logits of texts, and the loss of one
    python reference.py greedy FOLDER TEXTS OUT    # greedy text
    python reference.py loss FOLDER TEXTS OUT      # the loss alone
    python reference.py lora FOLDER TEXTS OUT      # an adapter, a batch of chats, and ten losses on it

FOLDER is a model's, TEXTS is texts.json. OUT gets reference.json and, of `logits`, logits0.f32 and so on, little-endian.
All is computed in f32 on the CPU.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

GREEDY = 64
LOSS = 200  # tokens
LEFT_OUT = -100
LORA = {"steps": 10, "learningRate": 2e-3, "weightDecay": 0.01, "maxGradNorm": 1.0}


def likeliest(model, ids):
    """The likeliest tokens one after the other, each with the next likely one and how far behind that is."""
    out, cache, given = [], None, torch.tensor([ids])
    for _ in range(GREEDY):
        said = model(given, past_key_values=cache, use_cache=True)
        cache = said.past_key_values
        best = said.logits[0, -1].topk(2)
        token, second = best.indices.tolist()
        gap = (best.values[0] - best.values[1]).item()
        out.append({"token": token, "second": second, "gap": gap})
        given = torch.tensor([[token]])
    return out


def loss(model, tokenizer, given, _):
    ids = tokenizer(given["loss"])["input_ids"][:LOSS]
    value = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
    return {"loss": {"ids": ids, "value": value}}


def logits(model, tokenizer, given, out):
    texts = []
    for i, text in enumerate(given["logits"]):
        ids = tokenizer(text)["input_ids"]
        model(torch.tensor([ids])).logits[0].numpy().astype("<f4").tofile(out / f"logits{i}.f32")
        texts.append({"text": text, "ids": ids})
    return {"logits": texts, **loss(model, tokenizer, given, out)}


def greedy(model, tokenizer, given, _):
    texts = []
    for text in given["greedy"]:
        ids = tokenizer(text)["input_ids"]
        texts.append({"text": text, "ids": ids, "steps": likeliest(model, ids)})
    return {"greedy": texts}


def chats(tokenizer, pairs):
    """All chats in one row, as tinyloom trains on them: (ids, next ids, first position of each one's chat)."""
    ids, targets, documents = [], [], []
    for question, answer in pairs:
        prompt = [{"role": "user", "content": question}]
        whole = [*prompt, {"role": "assistant", "content": answer}]
        encode = lambda messages, open_: tokenizer.apply_chat_template(  # noqa: E731
            messages, add_generation_prompt=open_, return_dict=False
        )
        before, all_ = encode(prompt, True), encode(whole, False)
        assert all_[: len(before)] == before, "a chat does not begin with its prompt"
        documents += [len(ids)] * len(all_)
        ids += all_
        learned = [LEFT_OUT] * len(before) + all_[len(before) :]
        targets += [*learned[1:], LEFT_OUT]
    return ids, targets, documents


def padded(ids, targets, documents):
    starts = sorted(set(documents))
    ends = [*starts[1:], len(ids)]
    most = max(end - start for start, end in zip(starts, ends))
    rows = {"input_ids": 0, "attention_mask": 0, "labels": LEFT_OUT}
    batch = {name: torch.full((len(starts), most), fill) for name, fill in rows.items()}
    for row, (start, end) in enumerate(zip(starts, ends)):
        size = end - start
        batch["input_ids"][row, :size] = torch.tensor(ids[start:end])
        batch["attention_mask"][row, :size] = 1
        batch["labels"][row, 1:size] = torch.tensor(targets[start : end - 1])
    return batch


def lora(model, tokenizer, given, out):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(7)
    config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config)
    adapted.save_pretrained(out / "adapter")
    row = chats(tokenizer, given["chats"])
    batch = padded(*row)
    parameters = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=LORA["learningRate"],
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=LORA["weightDecay"],
    )
    losses = []
    with torch.enable_grad():
        for _ in range(LORA["steps"]):
            loss = adapted(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, LORA["maxGradNorm"])
            optimizer.step()
            losses.append(loss.item())
    names = ("tokens", "targets", "documents")
    return {"options": LORA, "losses": losses, "batch": dict(zip(names, row))}


WORK = {"logits": logits, "greedy": greedy, "loss": loss, "lora": lora}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=WORK)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    # As tokenizer.json says: classes of single families build parts of it anew.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.folder)
    model = AutoModelForCausalLM.from_pretrained(
        args.folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    given = json.loads(args.texts.read_text(encoding="utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        result = WORK[args.what](model, tokenizer, given, args.out)
    (args.out / "reference.json").write_text(json.dumps(result), encoding="utf-8")


main()
