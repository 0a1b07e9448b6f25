// What a page, or Node, does while its GPU device is lost: each operation is held to what it gave undisturbed.

const OPERATIONS = ["create", "step", "run", "evaluate", "generate", "save", "resume"];

/** Steps behind which what is resumed was saved. */
const START = 3;

export const TEXT = Array.from(
  { length: 300 },
  (_, i) => `line ${i % 17}: the ${["cat", "dog", "owl"][i % 3]} sees ${(i * 7) % 31} mice. `,
).join("");

/** A hash of bytes, or of a text, as 32 bits (FNV-1a). */
export function hash(data) {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  let sum = 0x811c9dc5;
  for (const byte of bytes) sum = Math.imul(sum ^ byte, 0x01000193) >>> 0;
  return sum;
}

export const hashes = (files) =>
  Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, hash(bytes)]));

export async function all(iterable) {
  const found = [];
  for await (const one of iterable) found.push(one);
  return found;
}

/** Milliseconds that an attempt's operation takes at least: a short one is done several times. */
const SHORTEST = 400;

/**
 * Notes from when to when each pipeline was compiled. One that is asked for without waiting is there when the
 * GPU process has answered what was asked behind it.
 */
function watchCompilation(spans) {
  const { prototype } = globalThis.GPUDevice;
  const { createComputePipeline, createComputePipelineAsync } = prototype;
  const note = (from, there) => {
    const over = () => spans.push([from, performance.now()]);
    there.then(over, over);
  };
  prototype.createComputePipelineAsync = function (descriptor) {
    const from = performance.now();
    const made = createComputePipelineAsync.call(this, descriptor);
    note(from, made);
    return made;
  };
  prototype.createComputePipeline = function (descriptor) {
    const from = performance.now();
    const made = createComputePipeline.call(this, descriptor);
    this.pushErrorScope("internal");
    note(from, this.popErrorScope());
    return made;
  };
}

/** Milliseconds after `since` in which at least one pipeline was being compiled. */
function compiling(spans, since) {
  let [sum, reached] = [0, since];
  for (const [from, to] of spans.toSorted(([a], [b]) => a - b)) {
    if (to <= reached) continue;
    sum += to - Math.max(from, reached);
    reached = to;
  }
  return sum;
}

/** A runtime, and operations on it. */
export class Stage {
  #spans = [];
  /** The last step that was told of, and the step from which the trainer comes back. */
  #done = 0;
  #base = 0;

  /**
   * @param tinyloom - the package, with its `internal` module.
   * @param config - the model's.
   * @param options - the trainer's.
   * @param steps - of a run.
   * @param pace - of snapshots, closer than by default, so that trainers come back from some.
   */
  constructor(tinyloom, { config, options, steps, pace = { least: 200, share: 0.5 } }) {
    Object.assign(this, { tinyloom, config, options, steps, pace, states: [] });
    watchCompilation(this.#spans);
  }

  /** Opens the runtime and notes what each operation gives undisturbed, and how long it takes. */
  async open(gpu, operations = OPERATIONS) {
    const { Runtime, Dataset, ByteTokenizer, internal } = this.tinyloom;
    const onState = (state) => this.#hear(state);
    this.runtime = await Runtime.create({
      ...(gpu && { gpu }),
      recover: { onState, attempts: 50 },
    });
    internal.runtimes.of(this.runtime).recovery.pace = this.pace;
    this.runtime.lost.then(({ message }) => this.#hear({ state: "lost for good", message }));
    this.data = await Dataset.fromText(TEXT, new ByteTokenizer(), { sequenceLength: 32 });
    const trainer = await this.#trainer();
    await all(trainer.run(this.data, { until: START }));
    this.files = await trainer.save();
    trainer.model.free();
    this.expected = {};
    for (const name of operations) {
      await this[name](); // kernels are compiled here, and not in what follows
      let began = performance.now();
      const text = await this[name]();
      const times = Math.min(50, Math.ceil(SHORTEST / (performance.now() - began)));
      began = performance.now();
      await this.#perform(name, times);
      this.expected[name] = { text, times, took: performance.now() - began };
    }
    const { adapter, software } = this.runtime.capabilities;
    return { adapter, software };
  }

  #hear(state) {
    this.states.push({ ...state, at: performance.now() });
    if (state.state === "snapshot") this.#base = state.steps[0];
    if (state.state !== "recovered") return;
    // One step may have been under way.
    const most = this.#done - this.#base + 1;
    if (state.repeated > most) this.states.push({ state: "too many steps", ...state, most });
  }

  /** An operation so many times; what it gave that was first unlike the rest. */
  async #perform(name, times, text) {
    let got;
    for (let at = 0; at < times; at++) {
      got = await this[name]().catch((error) => `${error.code}: ${error.message}`);
      if (text !== undefined && got !== text) return got;
    }
    return got;
  }

  /** One operation, in the midst of which the device is lost. */
  async attempt(name, lose, part) {
    const { text, times, took } = this.expected[name];
    const from = this.states.length;
    const at = Math.round(part * took);
    const losing = new Promise((done) => {
      setTimeout(() => done(lose()), at);
    });
    const told = (state) => this.states.slice(from).filter((one) => one.state === state);
    let began = performance.now();
    let got = await this.#perform(name, times, text);
    const amid = told("lost").length > 0;
    let ended = performance.now();
    await losing;
    const end = performance.now() + 200_000; // Chromium may make it wait for two minutes
    while (told("reopened").length === 0 && performance.now() < end) {
      await new Promise((next) => setTimeout(next, 10));
    }
    if (!amid && got === text) {
      // The loss came behind its end: the next one meets it.
      began = told("lost")[0]?.at ?? performance.now();
      got = await this.#perform(name, times, text);
      ended = performance.now();
    }
    const compiled = Math.round(compiling(this.#spans, told("lost")[0]?.at ?? Infinity));
    this.#spans.length = 0;
    const late = Math.max(0, Math.round(ended - began - took));
    const row = { operation: name, at, amid, late, compiled, ...this.#account(told) };
    const wrong = this.#wrong(told);
    if (got !== text)
      wrong.push(`it gave ${got.slice(0, 300)}, and undisturbed ${text.slice(0, 300)}`);
    return wrong.length > 0 ? { ...row, wrong: wrong.join("; ") } : row;
  }

  #account(told) {
    const reopened = Math.round(told("reopened")[0]?.milliseconds ?? Number.NaN);
    const repeated = told("recovered")[0]?.repeated ?? null;
    const waited = told("waiting").length > 0;
    return { waited, reopened, repeated, sameAdapter: told("reopened")[0]?.sameAdapter };
  }

  #wrong(told) {
    const wrong = told("reopened").length === 0 ? ["no device came"] : [];
    for (const state of ["different", "failed", "lost for good", "too many steps"]) {
      if (told(state).length > 0) wrong.push(JSON.stringify(told(state)[0]));
    }
    return wrong;
  }

  /** Metrics of all steps; notes how far the trainer is. */
  async #train(trainer, run) {
    const found = [];
    for await (const metrics of trainer.run(this.data, run)) {
      this.#done = metrics.step;
      found.push(metrics);
    }
    return found;
  }

  async #trainer() {
    const { Model, Trainer } = this.tinyloom;
    [this.#done, this.#base] = [0, 0];
    const model = await Model.create(this.runtime, this.config, { seed: 4 });
    return Trainer.create(model, this.options);
  }

  #resumed() {
    [this.#done, this.#base] = [START, START];
    return this.tinyloom.Trainer.resume(this.runtime, this.files);
  }

  async #of(trainer, work) {
    const result = await work(trainer);
    trainer.model.free();
    return JSON.stringify(result);
  }

  async create() {
    return this.#of(await this.#trainer(), async (trainer) => hashes(await trainer.save()));
  }

  async step() {
    const ids = new TextEncoder().encode(TEXT);
    return this.#of(await this.#resumed(), async (trainer) => {
      const losses = [];
      for (let at = 0; at < this.steps; at++) {
        const tokens = Uint32Array.from(ids.subarray(9 * at, 9 * at + 40));
        const targets = Uint32Array.from(ids.subarray(9 * at + 1, 9 * at + 41));
        const { step, loss } = await trainer.step({ tokens, targets });
        this.#done = step;
        losses.push(loss);
      }
      return { losses, files: hashes(await trainer.save()) };
    });
  }

  async run() {
    return this.#of(await this.#trainer(), async (trainer) => {
      const metrics = await this.#train(trainer, { steps: this.steps });
      const seen = metrics.map(({ step, loss, gradNorm }) => [step, loss, gradNorm]);
      return { seen, files: hashes(await trainer.save()) };
    });
  }

  async evaluate() {
    return this.#of(await this.#resumed(), (trainer) => trainer.evaluate(this.data));
  }

  async generate() {
    return this.#of(await this.#resumed(), async ({ model }) => {
      const prompt = Uint32Array.from(new TextEncoder().encode(TEXT.slice(0, 20)));
      const drawn = await all(model.generate(prompt, { maxTokens: 60, seed: 6 }));
      return drawn.map(({ token }) => token);
    });
  }

  async save() {
    return this.#of(await this.#resumed(), async (trainer) => hashes(await trainer.save()));
  }

  async resume() {
    return this.#of(await this.#resumed(), async (trainer) => {
      await this.#train(trainer, { steps: 2 });
      return hashes(await trainer.save());
    });
  }
}
