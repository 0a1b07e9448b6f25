"""Writes adapters in the forms that PEFT has, and what each adds to the modules of a small Llama.

python make_peft.py FOLDER
"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?"
    r"(?:k_proj|v_proj|q_proj|o_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\."
    r"(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)\.(?:(?:k_proj|v_proj|q_proj|o_proj)))"
)
FORMS = {
    "list": {"target_modules": ["q_proj", "v_proj"]},
    "all-linear": {"target_modules": "all-linear"},
    "regex": {"target_modules": r".*\.(q_proj|v_proj)"},
    "regex-layer": {"target_modules": r"model\.layers\.1\.(self_attn|mlp)\.(q_proj|up_proj)"},
    "unsloth": {"target_modules": UNSLOTH},
    "rank-pattern": {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"v_proj": 2}},
    "rank-pattern-regex": {
        "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {r".*layers\.1\..*q_proj": 8},
        "alpha_pattern": {r"layers.1.self_attn.q_proj": 32, "v_proj": 2},
    },
    "anchored": {"target_modules": ["q_proj"], "rank_pattern": {"^model.layers.1.self_attn.q_proj": 8}},
    "alpha-pattern": {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {"q_proj": 32}},
    "rslora-patterns": {
        "target_modules": ["q_proj", "up_proj"],
        "use_rslora": True,
        "rank_pattern": {"up_proj": 9},
    },
    "layers": {"target_modules": ["q_proj"], "layers_to_transform": [1]},
    "first-layer": {"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"},
    "excluded": {"target_modules": ["q_proj", "v_proj"], "exclude_modules": ["layers.0.self_attn.v_proj"]},
    "orthogonal": {"target_modules": ["q_proj"], "init_lora_weights": "orthogonal"},
    "bf16": {"target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 6}},
}
REFUSED = {
    "embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "grown": {"target_modules": ["q_proj"]},
    "dora": {"target_modules": ["q_proj"], "use_dora": True},
}


def main(folder):
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
    )
    for name, form in {**FORMS, **REFUSED}.items():
        torch.manual_seed(len(name))
        model = LlamaForCausalLM(config)
        model.name_or_path = "org/small-llama"
        options = {"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM", **form}
        peft = get_peft_model(model, LoraConfig(**options))
        for parameter, value in peft.named_parameters():
            if "lora_B" in parameter:
                value.data = torch.randn_like(value) * 0.1
        if name == "bf16":
            peft = peft.to(torch.bfloat16)
        path = folder / name
        embeddings = name == "grown"
        peft.save_pretrained(path, save_embedding_layers=embeddings)
        deltas = {}
        for module, layer in peft.base_model.model.named_modules():
            if name in FORMS and getattr(layer, "lora_A", None) and "default" in layer.lora_A:
                deltas[module] = layer.get_delta_weight("default").detach().float().contiguous()
        if deltas:
            save_file(deltas, path / "deltas.safetensors")
    (folder / "forms.json").write_text(json.dumps({"loaded": list(FORMS), "refused": list(REFUSED)}))


main(Path(sys.argv[1]))
