// Checkpoints and configs in the forms that programs write: they load to the same model, or are refused with the cure.

import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { config, makeFile, openFile } from "../../api/bodies/kit.mjs";

const TOKENS = [1, 7, 3, 200, 9, 9, 31];

async function saved({ Model }, runtime, more = {}) {
  const model = await Model.create(runtime, { ...config, ...more }, { seed: 12 });
  const files = await model.save();
  const logits = await model.logits(TOKENS);
  model.free();
  const { header, data } = openFile(files["model.safetensors"].slice());
  const { __metadata__, ...tensors } = header;
  return {
    config: JSON.parse(new TextDecoder().decode(files["config.json"])),
    tensors,
    data,
    logits,
  };
}

const bytesOf = (value) => new TextEncoder().encode(JSON.stringify(value));

/** The same checkpoint with other names of tensors, and other fields in its config. */
function changed(given, name = (own) => own, fields = {}) {
  const renamed = Object.entries(given.tensors).map(([own, entry]) => [name(own), entry]);
  return {
    "config.json": bytesOf({ ...given.config, ...fields }),
    "model.safetensors": makeFile(Object.fromEntries(renamed), given.data),
  };
}

/** The same with one tensor more. */
function withTensor(given, name, values) {
  const at = given.data.length;
  const data = new Uint8Array(at + values.byteLength);
  data.set(given.data);
  data.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), at);
  const shape = given.tensors["model.embed_tokens.weight"].shape;
  const entry = { dtype: "F32", shape, data_offsets: [at, data.length] };
  return { ...given, data, tensors: { ...given.tensors, [name]: entry } };
}

async function expectLogits({ Model }, runtime, files, logits, what) {
  const model = await Model.fromPretrained(runtime, files);
  sameBytes(await model.logits(TOKENS), logits, what);
  model.free();
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "names and fields are read in the module, the same in every host",
  smoke: ["names of tensors may have more or less before them"],
};

export const cases = {
  async "names of tensors may have more or less before them"({ tinyloom, runtime }) {
    const given = await saved(tinyloom, runtime);
    for (const [what, name] of [
      ["without model.", (own) => own.replace(/^model\./, "")],
      ["with module.", (own) => `module.${own}`],
      ["with _orig_mod.", (own) => `_orig_mod.${own}`],
      ["with both", (own) => `module._orig_mod.${own}`],
    ]) {
      await expectLogits(tinyloom, runtime, changed(given, name), given.logits, what);
    }
    const { "model.safetensors": file, ...rest } = changed(given);
    const { header, data } = openFile(file);
    const withNull = makeFile({ __metadata__: null, ...header }, data);
    const files = { ...rest, "model.safetensors": withNull };
    await expectLogits(tinyloom, runtime, files, given.logits, "__metadata__: null");
  },

  async "of two tied names one is enough, and two have to agree"({ tinyloom, runtime }) {
    const given = await saved(tinyloom, runtime, { tie_word_embeddings: true });
    const embedding = "model.embed_tokens.weight";
    const head = (own) => (own === embedding ? "lm_head.weight" : own);
    await expectLogits(tinyloom, runtime, changed(given, head), given.logits, "the head alone");
    const [begin, end] = given.tensors[embedding].data_offsets;
    const own = new Float32Array(given.data.slice(begin, end).buffer);
    const both = withTensor(given, "lm_head.weight", own);
    await expectLogits(tinyloom, runtime, changed(both), given.logits, "both");
    const other = withTensor(
      given,
      "lm_head.weight",
      own.map((value) => 2 * value),
    );
    const words = ["lm_head.weight", embedding, "tie_word_embeddings", "false"];
    await refuses("invalid-checkpoint", words, () =>
      tinyloom.Model.fromPretrained(runtime, changed(other)),
    );
    // As transformers loads the two.
    const untied = changed(other, undefined, { tie_word_embeddings: false });
    const model = await tinyloom.Model.fromPretrained(runtime, untied);
    const logits = await model.logits(TOKENS);
    ok(
      logits.every(
        (one, at) => Math.abs(one - 2 * given.logits[at]) <= 1e-5 * Math.abs(one) + 1e-6,
      ),
      "logits of the head",
    );
    model.free();
    // An adapter is merged into the file that has the head alone.
    const base = await tinyloom.Model.fromPretrained(runtime, changed(given, head));
    const adapter = await tinyloom.Adapter.create(base, { rank: 2 });
    const merged = await adapter.saveMerged(changed(given, head));
    await expectLogits(tinyloom, runtime, merged, given.logits, "merged");
    base.free();
  },

  async "tensors that no model has come with the cure"({ tinyloom, runtime }) {
    const given = await saved(tinyloom, runtime);
    const values = new Float32Array(config.vocab_size * config.hidden_size);
    for (const [name, cure] of [
      ["v_head.weight", "AutoModelForCausalLM"],
      ["model.layers.9.mlp.up_proj.weight", "fewer layers"],
      ["base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", "Adapter.load"],
    ]) {
      await refuses("invalid-checkpoint", [name, cure], () =>
        tinyloom.Model.fromPretrained(runtime, changed(withTensor(given, name, values))),
      );
    }
  },

  async "configs are read as programs write them"({ tinyloom, runtime }) {
    const given = await saved(tinyloom, runtime);
    for (const fields of [
      { architectures: ["LlamaModel"] },
      { architectures: [], head_dim: null, rope_scaling: null },
      { rms_norm_eps: String(given.config.rms_norm_eps), hidden_size: String(config.hidden_size) },
      { sliding_window: 4, use_sliding_window: false },
    ]) {
      const files = changed(given, undefined, fields);
      await expectLogits(tinyloom, runtime, files, given.logits, JSON.stringify(fields));
    }
    const nested = changed(given);
    nested["config.json"] = bytesOf({
      model_type: "of_images",
      text_config: given.config,
      vision_config: { hidden_size: 8 },
    });
    const inner = openFile(nested["model.safetensors"]);
    const names = Object.entries(inner.header).map(([own, entry]) => [
      own.replace(/^model\./, "model.language_model."),
      entry,
    ]);
    nested["model.safetensors"] = makeFile(Object.fromEntries(names), inner.data);
    await expectLogits(tinyloom, runtime, nested, given.logits, "text_config");
  },

  async "a config from code has known fields alone"({ tinyloom, runtime }) {
    const { Model } = tinyloom;
    for (const [more, name] of [
      [{ heat_of_softmax: 2 }, "heat_of_softmax"],
      [{ sliding_window: 8 }, "sliding_window"],
    ]) {
      await refuses("invalid-config", name, () => Model.create(runtime, { ...config, ...more }));
    }
    const known = {
      eos_token_id: 3,
      use_cache: true,
      torch_dtype: "float32",
      _name_or_path: "x/y",
    };
    const model = await Model.create(runtime, { ...config, ...known });
    equal(model.config.eos_token_id, 3);
    // What a model's config says makes the same model.
    const same = await Model.create(runtime, model.config);
    for (const one of [model, same]) one.free();
  },

  async "an adapter keeps the name of the model under it"({ tinyloom, runtime }) {
    const { Adapter, Model } = tinyloom;
    const model = await Model.create(runtime, { ...config, _name_or_path: "org/tiny" });
    const nameIn = async (adapter) => {
      const files = await adapter.save();
      const text = new TextDecoder().decode(files["adapter_config.json"]);
      return [JSON.parse(text).base_model_name_or_path, files];
    };
    const [own, files] = await nameIn(await Adapter.create(model, { rank: 2 }));
    equal(own, "org/tiny");
    const other = JSON.parse(new TextDecoder().decode(files["adapter_config.json"]));
    files["adapter_config.json"] = bytesOf({ ...other, base_model_name_or_path: "org/another" });
    const [kept] = await nameIn(await Adapter.load(model, files));
    equal(kept, "org/another");
    model.free();
  },
};
