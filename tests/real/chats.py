"""What transformers answers in chats, for tests/real/chats.mjs.

    python chats.py answers FOLDER CHATS OUT   # the model's greedy answers to the questions
    python chats.py tuned FOLDER CHATS OUT     # to those of the chats, with PEFT's reading of the adapter in OUT/adapter

FOLDER is a model's, CHATS is chats.json. OUT gets transformers.json. All is computed in f32 on the CPU.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

MOST = 32  # tokens of an answer


def answer(model, tokenizer, question, ends):
    """The likeliest tokens up to the end of the turn, each with the next likely one and how far behind that is."""
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    steps, cache, given = [], None, torch.tensor([prompt])
    while len(steps) < MOST and not (steps and steps[-1]["token"] in ends):
        said = model(given, past_key_values=cache, use_cache=True)
        cache = said.past_key_values
        best = said.logits[0, -1].topk(2)
        token, second = best.indices.tolist()
        steps.append({"token": token, "second": second, "gap": (best.values[0] - best.values[1]).item()})
        given = torch.tensor([[token]])
    drawn = [step["token"] for step in steps if step["token"] not in ends]
    text = tokenizer.decode(drawn, skip_special_tokens=True)
    return {"question": question, "prompt": prompt, "steps": steps, "text": text, "ended": len(drawn) < len(steps)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("answers", "tuned"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("chats", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    # As tokenizer.json says: classes of single families build parts of it anew.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.folder)
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="eager")
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    given = json.loads(args.chats.read_text(encoding="utf-8"))
    questions = given["questions"]
    if args.what == "tuned":
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, args.out / "adapter")
        questions = [question for question, _ in given["chats"]]
    model = model.eval()
    with torch.no_grad():
        answers = [answer(model, tokenizer, question, ends) for question in questions]
    args.out.mkdir(parents=True, exist_ok=True)
    made = {"most": MOST, "ends": ends, "answers": answers}
    (args.out / "transformers.json").write_text(json.dumps(made), encoding="utf-8")


main()
