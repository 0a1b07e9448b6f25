#!/usr/bin/env python3
"""Writes fixtures/embedding: a tiny model of Qwen3-Embedding's kind, and what its README makes of texts.

    python make_embedding_fixtures.py [OUT]

The checkpoint is as `AutoModel` saves one: its tensors have no `model.` before their names, and it has no head. Texts
are bytes with 256 behind them, as Qwen's tokenizer has <|endoftext|>. They are padded on the left, pooled and
normalised by the lines of the README of Qwen3-Embedding-0.6B.
"""

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from transformers import Qwen3Config, Qwen3Model

from make_fixtures import fill, prepared, write_json

TASK = "Given a web search query, retrieve relevant passages that answer the query"
QUERIES = ["What is rain?", "Pourquoi le ciel? 🌧"]
DOCUMENTS = ["Rain is water that falls from clouds.", "x"]
END = 256


def last_token_pool(last_hidden_states, attention_mask):
    left_padding = attention_mask[:, -1].sum() == attention_mask.shape[0]
    if left_padding:
        return last_hidden_states[:, -1]
    sequence_lengths = attention_mask.sum(dim=1) - 1
    batch_size = last_hidden_states.shape[0]
    return last_hidden_states[torch.arange(batch_size), sequence_lengths]


def get_detailed_instruct(task_description, query):
    return f"Instruct: {task_description}\nQuery:{query}"


def main():
    out = prepared("embedding")
    out.mkdir(parents=True, exist_ok=True)
    model = Qwen3Model(Qwen3Config(
        vocab_size=257, hidden_size=20, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, max_position_embeddings=256,
        attn_implementation="eager",
    ))
    fill(model, 70)
    model.save_pretrained(out)
    texts = [get_detailed_instruct(TASK, query) for query in QUERIES] + DOCUMENTS
    ids = [[*text.encode(), END] for text in texts]
    width = max(map(len, ids))
    batch = torch.tensor([[0] * (width - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    with torch.no_grad():
        states = model(input_ids=batch, attention_mask=mask).last_hidden_state
        last = last_token_pool(states, mask)
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        alone = torch.cat([model(torch.tensor([row])).last_hidden_state[:, -1] for row in ids])
    assert (last - alone).abs().max() < 1e-5, (last - alone).abs().max()
    arrays = {"last": F.normalize(last, p=2, dim=1), "raw": last, "mean": mean}
    save_file({name: np.ascontiguousarray(value.numpy()) for name, value in arrays.items()}, out / "oracle.safetensors")
    write_json(out / "texts.json", {"task": TASK, "queries": QUERIES, "documents": DOCUMENTS, "end": END})


if __name__ == "__main__":
    main()
