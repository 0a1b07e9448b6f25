#!/usr/bin/env python3
"""Writes what transformers gives when hooks change it on its way, for the option `interventions`, and what hooks see,
for `model.capture`, `model.lens` and `model.attribute`.

    python make_intervention_fixtures.py [OUT]   # OUT defaults to fixtures/interventions beside this file

For each model a file MODEL.safetensors: the vectors of the interventions, and the logits of each case of MODEL.json, by its
name. Then without interventions: states behind each layer (the last one before the final norm), what attention and the
feed-forward blocks add to them, probabilities of attention, queries, keys and values before RoPE and norms of heads, what
norm and head make of each state, and the gradient of one logit less another by each state. All in float32 on one CPU thread;
the same in float64 must agree to a tenth of what the tests allow.
"""

import json

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from make_fixtures import HERE, prepared

NAMES = ["llama", "gpt2", "gpt-neox", "gemma", "gemma3", "qwen3", "granite", "olmo2"]
TOKENS = 11
NOISE = 1e-5


class Parts:
    """The modules of a model, by what they are here."""

    def __init__(self, model):
        config = self.config = model.config
        self.model = model
        core = getattr(model, "model", None) or getattr(model, "transformer", None) or model.gpt_neox
        self.layers = list(getattr(core, "layers", None) or core.h)
        self.norm = next(getattr(core, n) for n in ("norm", "ln_f", "final_layer_norm") if hasattr(core, n))
        self.heads = config.num_attention_heads
        self.kv_heads = getattr(config, "num_key_value_heads", None) or self.heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        # What a block of Granite adds has this factor.
        self.factor = getattr(config, "residual_multiplier", 1.0)

    def attention(self, layer):
        one = self.layers[layer]
        return next(getattr(one, n) for n in ("self_attn", "attn", "attention") if hasattr(one, n))

    def output(self, layer):
        own = self.attention(layer)
        return next(getattr(own, n) for n in ("o_proj", "c_proj", "dense") if hasattr(own, n))

    def ends(self, layer):
        """The modules whose results are added to the stream: of attention, of the feed-forward block."""
        one = self.layers[layer]
        if hasattr(one, "post_feedforward_layernorm"):
            return one.post_attention_layernorm, one.post_feedforward_layernorm
        return self.attention(layer), one.mlp

    def before(self, layer):
        """The module that is given the state behind so many layers."""
        return self.layers[layer] if layer < len(self.layers) else self.norm

    def products(self, layer):
        """Hooks that leave queries, keys and values in a dictionary, and the dictionary."""
        own, seen = self.attention(layer), {}
        if hasattr(own, "q_proj"):
            keep = lambda name: lambda _, __, out: seen.update({name: out})
            hooks = [getattr(own, f"{n}_proj").register_forward_hook(keep(n)) for n in "qkv"]
            return seen, hooks

        def split(_, __, out):
            if hasattr(own, "c_attn"):
                seen.update(zip("qkv", out.split(self.heads * self.head_dim, dim=-1)))
            else:
                by_head = out.view(*out.shape[:-1], self.heads, 3 * self.head_dim)
                seen.update({n: p.flatten(-2) for n, p in zip("qkv", by_head.chunk(3, dim=-1))})

        fused = own.c_attn if hasattr(own, "c_attn") else own.query_key_value
        return seen, [fused.register_forward_hook(split)]


def change(x, case, vectors, length):
    """Of rows [length, width] those of its positions, changed."""
    positions = case.get("positions")
    if isinstance(positions, dict):
        positions = list(range(positions.get("from", 0), positions.get("to", length)))
    at = torch.tensor(list(range(length)) if positions is None else positions)
    x, rows = x.clone(), x[at]
    strength = case.get("strength", 1)
    if "scale" in case:
        rows = rows * case["scale"]
    elif "add" in case:
        rows = rows + strength * vectors[case["add"]].to(x.dtype)
    elif "project" in case:
        u = vectors[case["project"]].to(x.dtype)
        u = u / u.norm()
        rows = rows - strength * (rows @ u)[:, None] * u
    else:
        rows = vectors[case["set"]].to(x.dtype).reshape(-1, x.shape[-1]).expand(len(at), -1)
    x[at] = rows
    return x


def hooked(parts, case, vectors, length):
    """Registers the hook of one intervention."""
    at, layer = case["at"], case["layer"]
    of = lambda x: change(x[0], case, vectors, length)[None]
    if at == "residual":
        return parts.before(layer).register_forward_pre_hook(
            lambda _, args, kwargs: ((of(args[0]), *args[1:]), kwargs) if args
            else (args, {**kwargs, "hidden_states": of(kwargs["hidden_states"])}),
            with_kwargs=True,
        )
    if at == "head":
        columns = slice(case["head"] * parts.head_dim, (case["head"] + 1) * parts.head_dim)

        def one(_, args):
            x = args[0].clone()
            x[..., columns] = of(x[..., columns])
            return (x, *args[1:])

        return parts.output(layer).register_forward_pre_hook(one)
    scaled = lambda x: of(x * parts.factor) / parts.factor
    result = lambda out: (scaled(out[0]), *out[1:]) if isinstance(out, tuple) else scaled(out)
    return parts.ends(layer)[at == "mlp"].register_forward_hook(lambda _, __, out: result(out))


def cases_of(parts):
    last, hidden, dim = len(parts.layers), parts.config.hidden_size, parts.head_dim
    random = np.random.default_rng(59)
    vector = lambda *shape: random.standard_normal(shape).astype(np.float32)
    vectors = {
        "direction": vector(hidden), "other": vector(hidden), "patch": vector(3, hidden), "state": vector(hidden),
        "head": vector(dim),
    }
    heads = parts.heads - 1
    cases = {
        "a head off": [dict(at="head", layer=1, head=heads, scale=0)],
        "heads scaled": [dict(at="head", layer=0, head=h, scale=0.5 + h) for h in range(parts.heads)],
        "attention off": [dict(at="attention", layer=0, scale=0)],
        "a feed-forward block off": [dict(at="mlp", layer=last - 1, scale=0)],
        "blocks scaled": [dict(at="attention", layer=1, scale=0.5), dict(at="mlp", layer=0, scale=-1.5, positions=[1, 4])],
        "steering": [dict(at="residual", layer=1, add="direction", strength=3)],
        "steering from a position on": [dict(at="residual", layer=0, add="direction", positions={"from": 6})],
        "a projection before the final norm": [dict(at="residual", layer=last, project="direction")],
        "half a projection": [dict(at="residual", layer=1, project="other", strength=0.5, positions=[0, 3, 4, 9])],
        "patching": [dict(at="residual", layer=1, set="patch", positions=[5, 2, 3])],
        "one state for some": [dict(at="residual", layer=last - 1, set="state", positions={"from": 2, "to": 5})],
        "what a head leaves": [dict(at="head", layer=0, head=0, set="head", positions=[7])],
        "what a block adds": [dict(at="mlp", layer=1, set="state", positions=[3])],
        "several, in their order": [
            dict(at="residual", layer=1, add="direction"),
            dict(at="residual", layer=1, project="direction", positions=[2, 3, 4]),
            dict(at="residual", layer=1, scale=0.5),
            dict(at="attention", layer=1, add="other", strength=-0.5),
            dict(at="head", layer=1, head=0, scale=2),
        ],
    }
    return cases, vectors


def seen(parts, ids):
    """What hooks see without interventions."""
    count, found, hooks = len(parts.layers), {}, []
    states = [None] * (count + 1)
    added = {"attention_output": [None] * count, "mlp": [None] * count}

    def state(layer):
        def keep(_, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            x.retain_grad()
            states[layer] = x

        return keep

    def end(name, layer):
        def keep(_, __, out):
            added[name][layer] = (out[0] if isinstance(out, tuple) else out)[0] * parts.factor

        return keep

    for layer in range(count + 1):
        hooks.append(parts.before(layer).register_forward_pre_hook(state(layer), with_kwargs=True))
    products = [parts.products(layer) for layer in range(count)]
    for layer in range(count):
        hooks += products[layer][1]
        for name, module in zip(added, parts.ends(layer)):
            hooks.append(module.register_forward_hook(end(name, layer)))
    # So that the first state has a gradient.
    parts.model.get_input_embeddings().weight.requires_grad_(True)
    out = parts.model(ids[None], use_cache=False, output_attentions=True)
    last, vocabulary = out.logits[0, -1], out.logits.shape[-1]
    (last[3] - last[vocabulary - 2]).backward()
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        final = torch.stack([x[0] for x in states])
        lens = parts.model.get_output_embeddings()(parts.norm(final)) / getattr(parts.config, "logits_scaling", 1)
        cap = getattr(parts.config, "final_logit_softcapping", None)
        lens = lens if cap is None else torch.tanh(lens / cap) * cap
        assert torch.allclose(lens[-1], out.logits[0], atol=1e-5), "the last state has the logits"
    found["states"] = final
    found |= {name: torch.stack(rows) for name, rows in added.items()}
    found["attention"] = torch.cat(out.attentions)
    for n, name in zip("qkv", ("query", "key", "value")):
        found[name] = torch.stack([p[0][n][0] for p in products])
    found["lens"] = lens
    found["attribution"] = torch.stack([x.grad[0] for x in states])
    return {name: value.detach() for name, value in found.items()}


def run(name, ids, dtype):
    model = AutoModelForCausalLM.from_pretrained(
        HERE / "fixtures" / name, dtype=dtype, attn_implementation="eager"
    )
    model.requires_grad_(False)
    parts = Parts(model)
    cases, vectors = cases_of(parts)
    tensors = {key: torch.from_numpy(value) for key, value in vectors.items()}
    found = {}
    for case, interventions in cases.items():
        hooks = [hooked(parts, one, tensors, len(ids)) for one in interventions]
        with torch.no_grad():
            found[case] = model(ids[None], use_cache=False).logits[0]
        for hook in hooks:
            hook.remove()
    return cases, vectors, found | seen(parts, ids)


def make(name, out):
    oracle = load_file(HERE / "fixtures" / name / "oracle.safetensors")
    tokens = oracle["tokens"][-TOKENS:]
    ids = torch.from_numpy(tokens.astype(np.int64))
    cases, vectors, found = run(name, ids, torch.float32)
    exact = run(name, ids, torch.float64)[2]
    worst = max((found[key] - exact[key]).abs().max().item() for key in found if key != "attribution")
    assert worst < NOISE, (name, worst)
    plain = found["lens"][-1]
    for case in cases:
        assert (found[case] - plain).abs().max() > 1e-2, (name, case, "changes nothing")
    arrays = {"tokens": tokens} | vectors | {key: value.numpy() for key, value in found.items()}
    path = out / f"{name}.safetensors"
    save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, path)
    (out / f"{name}.json").write_text(json.dumps(cases, indent=1) + "\n")
    print(f"{path.stat().st_size:8} {path.name}, float32 within {worst:.1e}")


def main():
    out = prepared("interventions")
    out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        make(name, out)


if __name__ == "__main__":
    main()
