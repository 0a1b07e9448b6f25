"""Continues a prompt of bytes with a saved model, taking the likeliest byte each time.

usage: continue_text.py FOLDER PROMPT COUNT; prints the bytes as JSON.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

folder, prompt, count = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ids = list(prompt.encode())
with torch.no_grad():
    for _ in range(int(count)):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
print(json.dumps(ids[-int(count) :]))
