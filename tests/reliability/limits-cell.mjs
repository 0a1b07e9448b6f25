// One cell of the sweep over limits, in a page or in Node: it trains as a device without caps does, or refuses.
// What reaches the GPU is held to the caps, beside what `trainer.plan()` says of it.

const KIB = 1 << 10;
const MIB = 1 << 20;

/** WebGPU's name of each limit that is swept. */
const NAMES = {
  buffers: "maxStorageBuffersPerShaderStage",
  workgroup: "maxComputeWorkgroupStorageSize",
  invocations: "maxComputeInvocationsPerWorkgroup",
  binding: "maxStorageBufferBindingSize",
};

/** Values of each limit. Every kernel needs 6 storage buffers: 5 are refused. */
export const AXES = {
  buffers: [8, 7, 6, 5],
  workgroup: [16 * KIB, 24 * KIB, 32 * KIB, 48 * KIB],
  invocations: [64, 128, 256, 512, 1024],
  binding: [16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB],
  subgroups: ["auto", false],
};

const LLAMA = {
  model_type: "llama",
  tie_word_embeddings: true,
  max_position_embeddings: 512,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
};

/** Small ones for adapters that compute on the CPU; in the wide ones a matrix exceeds 16 MiB, and so do the logits. */
const MODELS = {
  software: {
    narrow: { ...LLAMA, hidden_size: 64, intermediate_size: 160, vocab_size: 256 },
    wide: { ...LLAMA, hidden_size: 64, intermediate_size: 160, vocab_size: 80_000 },
    tokens: 64,
  },
  hardware: {
    narrow: { ...LLAMA, hidden_size: 512, intermediate_size: 1408, vocab_size: 4096 },
    wide: { ...LLAMA, hidden_size: 512, intermediate_size: 1408, vocab_size: 50_257 },
    tokens: 512,
  },
};

const STEPS = 6;
/** How far a loss may be from that of the device without caps. */
const TOLERANCE = 1e-3;

/** Values of a cell as the options of `Runtime.create`. */
export function optionsOf({ subgroups, ...values }) {
  const limits = Object.entries(values).map(([axis, value]) => [NAMES[axis], value]);
  return {
    ...(limits.length > 0 && { limits: Object.fromEntries(limits) }),
    ...(subgroups === false && { features: { subgroups: false } }),
  };
}

/** Bytes of a composed text's variables in workgroup memory. */
export function workgroupBytes(wgsl) {
  const text = wgsl.replace(/\/\/[^\n]*/g, "").replace(/\b(\d+)u\b/g, "$1");
  const constants = new Map();
  for (const [, name, value] of text.matchAll(/\bconst (\w+)(?:\s*:\s*\w+)?\s*=\s*([^;]+);/g)) {
    constants.set(name, value);
  }
  const structs = new Map();
  for (const [, name, fields] of text.matchAll(/\bstruct (\w+)\s*\{([^}]*)\}/g)) {
    structs.set(name, fields);
  }
  const evaluate = (expression) => {
    const whole = expression.replace(/[A-Za-z_]\w*/g, (name) => {
      if (!constants.has(name)) throw new Error(`no constant ${name} in ${expression}`);
      return `(${evaluate(constants.get(name))})`;
    });
    if (!/^[\d\s()+*/|&<>-]+$/.test(whole)) throw new Error(`cannot evaluate ${expression}`);
    return String(Function(`return ${whole.replace(/\d+/g, "$&n")}`)()); // whole numbers, as in WGSL
  };
  const size = (type) => {
    const array = /^array<(.*),([^,]*)>$/s.exec(type);
    if (array) return size(array[1].trim()) * Number(evaluate(array[2]));
    const lanes = /^vec([234])<(?:f32|u32|i32)>$/.exec(type);
    if (lanes) return lanes[1] === "2" ? 8 : 16;
    if (/^(f32|u32|i32)$/.test(type)) return 4;
    if (!structs.has(type)) throw new Error(`no type ${type}`);
    const fields = structs
      .get(type)
      .split(/,(?![^<]*>)/)
      .filter((field) => field.includes(":"));
    const sum = fields.reduce((bytes, field) => bytes + size(field.split(":")[1].trim()), 0);
    return Math.ceil(sum / 16) * 16;
  };
  let bytes = 0;
  for (const [, type] of text.matchAll(/var<workgroup> \w+\s*:\s*([^;]+);/g)) {
    bytes += Math.ceil(size(type.trim()) / 16) * 16;
  }
  return bytes;
}

/** What a text asks of a device. */
const demand = (wgsl) => ({
  workgroup: workgroupBytes(wgsl),
  invocations: Number(/@workgroup_size\((\d+)\)/.exec(wgsl)?.[1]),
  buffers: (wgsl.match(/var<storage/g) ?? []).length,
});

/** While `work` runs, notes the texts and the bindings that reach the device. */
export async function watching(device, work) {
  const owner = Object.getPrototypeOf(device);
  const own = {
    createShaderModule: owner.createShaderModule,
    createBindGroup: owner.createBindGroup,
  };
  const seen = { texts: new Set(), binding: 0 };
  owner.createShaderModule = function (descriptor) {
    seen.texts.add(descriptor.code);
    return own.createShaderModule.call(this, descriptor);
  };
  owner.createBindGroup = function (descriptor) {
    for (const { resource } of descriptor.entries) {
      const { buffer = resource, offset = 0, size = buffer.size - offset } = resource;
      seen.binding = Math.max(seen.binding, size);
    }
    return own.createBindGroup.call(this, descriptor);
  };
  try {
    await work();
  } finally {
    Object.assign(owner, own);
  }
  return seen;
}

/** What the texts, the bindings and the plan take more than the limits allow, in words. */
export function breaches({ limits, features }, seen, plan) {
  const found = new Set();
  const hold = (what, value, name) => {
    if (!(value <= limits[name])) found.add(`${what}: ${value} above ${name} ${limits[name]}`);
  };
  for (const text of seen.texts) {
    for (const [axis, value] of Object.entries(demand(text))) hold("a text", value, NAMES[axis]);
    if (!features.subgroups && /\bsubgroup\w*\(/.test(text)) found.add("a text uses subgroups");
  }
  hold("a bind group", seen.binding, NAMES.binding);
  for (const row of plan) {
    const { kernel, workgroupSize, grid, bindings } = row;
    const storage = bindings.filter(({ access }) => access !== "uniform").length;
    hold(
      kernel,
      workgroupSize.reduce((product, n) => product * n, 1),
      NAMES.invocations,
    );
    hold(kernel, storage, NAMES.buffers);
    hold(kernel, Math.max(...grid), "maxComputeWorkgroupsPerDimension");
    hold(kernel, demand(row.wgsl).workgroup, NAMES.workgroup);
  }
  return [...found];
}

/** A trainer's plan with the text of each row. */
export const withTexts = (trainer) =>
  trainer.plan().map((row, at) => ({ ...row, wgsl: trainer.wgsl(at) }));

/** Trains for some steps, then generates. */
async function train({ Model, Trainer, internal }, runtime, config, tokens) {
  const ids = (step) =>
    Uint32Array.from({ length: tokens + 1 }, (_, i) => (i * 31 + step * 7 + (i % 5)) % 256);
  const counters = () => internal.runtimes.of(runtime).counters();
  const model = await Model.create(runtime, config, { seed: 11 });
  const before = counters();
  let trainer;
  try {
    trainer = await Trainer.create(model, { tokensPerStep: tokens, learningRate: 1e-3, seed: 3 });
  } catch (error) {
    const after = counters();
    return {
      refused: error,
      allocated: after.gpuBytes - before.gpuBytes + after.buffers - before.buffers,
    };
  }
  const plan = withTexts(trainer);
  const losses = [];
  for (let step = 0; step < STEPS; step++) {
    const all = ids(step);
    losses.push((await trainer.step({ tokens: all.slice(0, -1), targets: all.slice(1) })).loss);
  }
  let said = 0;
  for await (const { token } of model.generate(ids(0).slice(0, 24), { maxTokens: 4 })) {
    if (!(token >= 0 && token < config.vocab_size)) throw new Error(`token ${token}`);
    said += 1;
  }
  if (said !== 4) throw new Error(`${said} tokens`);
  model.free();
  return { losses, plan };
}

/** Whether none of the cell's values is above what the adapter has. */
export function isEffective({ subgroups, ...values }, { limits, features }) {
  const below = Object.entries(values).every(([axis, value]) => value <= limits[NAMES[axis]]);
  return below && (subgroups !== false || features.subgroups);
}

/** Runs cells on one adapter, one after the other. */
export class Sweep {
  #tinyloom;
  #gpu;
  #expected = {};

  /** @param tinyloom - the package, with its module `internal.js` as `internal`. */
  constructor(tinyloom, gpu) {
    this.#tinyloom = tinyloom;
    this.#gpu = gpu;
  }

  async #runtime(options) {
    return this.#tinyloom.Runtime.create({ gpu: this.#gpu, recover: false, ...options });
  }

  /** What the adapter has, without caps. */
  async open() {
    const runtime = await this.#runtime({});
    this.capabilities = runtime.capabilities;
    runtime.destroy();
    return this.capabilities;
  }

  /** The losses without caps. */
  async #reference(kind, { [kind]: config, tokens }) {
    if (!this.#expected[kind]) {
      const runtime = await this.#runtime({});
      const { losses, refused } = await train(this.#tinyloom, runtime, config, tokens);
      runtime.destroy();
      if (refused) throw refused;
      this.#expected[kind] = losses;
    }
    return this.#expected[kind];
  }

  /**
   * One cell.
   *
   * @returns `{ cell, result: "trains" | "refused" | "no effect" | "wrong", detail, milliseconds }`.
   */
  async run(cell) {
    const began = performance.now();
    let outcome;
    try {
      outcome = isEffective(cell, this.capabilities)
        ? await this.#outcome(cell)
        : { result: "no effect" };
    } catch (error) {
      outcome = { result: "wrong", detail: `${error?.code ?? ""} ${error?.stack ?? error}` };
    }
    return { cell, ...outcome, milliseconds: Math.round(performance.now() - began) };
  }

  async #outcome(cell) {
    const models = this.capabilities.software ? MODELS.software : MODELS.hardware;
    const kind = cell.binding < 128 * MIB ? "wide" : "narrow";
    const expected = await this.#reference(kind, models);
    const runtime = await this.#runtime(optionsOf(cell));
    try {
      let done;
      const seen = await watching(runtime.device, async () => {
        done = await train(this.#tinyloom, runtime, models[kind], models.tokens);
      });
      if (done.refused) return refusal(done);
      const found = breaches(runtime.capabilities, seen, done.plan);
      const off = Math.max(...done.losses.map((loss, step) => Math.abs(loss - expected[step])));
      if (!(off <= TOLERANCE)) found.push(`losses ${done.losses}, without caps ${expected}`);
      if (found.length > 0) return { result: "wrong", detail: found.join("; ") };
      return { result: "trains", off, texts: seen.texts.size, mostBound: seen.binding };
    } finally {
      runtime.destroy();
    }
  }
}

/** A refusal is one by name, before anything is allocated. */
function refusal({ refused, allocated }) {
  const { code, message } = refused;
  if (code !== "limit-exceeded") return { result: "wrong", detail: `${code}: ${message}` };
  if (allocated !== 0) return { result: "wrong", detail: `refused after ${allocated} bytes` };
  return { result: "refused", detail: message };
}
