// What a page, or Node, does while its GPU device is lost: each operation is held to what it gave undisturbed.

const OPERATIONS = ["create", "step", "run", "evaluate", "generate", "save", "resume"];

const TEXT = Array.from(
  { length: 300 },
  (_, i) => `line ${i % 17}: the ${["cat", "dog", "owl"][i % 3]} sees ${(i * 7) % 31} mice. `,
).join("");

/** A hash of bytes or numbers, as 32 bits (FNV-1a). */
function hash(bytes) {
  let sum = 0x811c9dc5;
  for (const byte of bytes) sum = Math.imul(sum ^ byte, 0x01000193) >>> 0;
  return sum;
}

const hashes = (files) =>
  Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, hash(bytes)]));

async function all(iterable) {
  const found = [];
  for await (const one of iterable) found.push(one);
  return found;
}

/** A runtime, and operations on it. */
export class Stage {
  /**
   * @param config - the model's.
   * @param options - the trainer's.
   * @param steps - of a run.
   */
  constructor(tinyloom, { config, options, steps }) {
    Object.assign(this, { tinyloom, config, options, steps, states: [] });
  }

  /** Opens the runtime and notes what each operation gives undisturbed, and how long it takes. */
  async open(gpu, operations = OPERATIONS) {
    const { Runtime, Dataset, ByteTokenizer } = this.tinyloom;
    const onState = (state) => this.states.push(state);
    this.runtime = await Runtime.create({
      ...(gpu && { gpu }),
      recover: { onState, attempts: 50 },
    });
    this.runtime.lost.then(({ message }) => this.states.push({ state: "lost for good", message }));
    this.data = await Dataset.fromText(TEXT, new ByteTokenizer(), { sequenceLength: 32 });
    const trainer = await this.#trainer();
    await all(trainer.run(this.data, { until: 3 }));
    this.files = await trainer.save();
    trainer.model.free();
    this.expected = {};
    for (const name of operations) {
      await this[name](); // kernels are compiled here, and not in what follows
      const began = performance.now();
      this.expected[name] = { text: await this[name](), took: performance.now() - began };
    }
    return this.runtime.capabilities.adapter;
  }

  /** One operation, in the midst of which the device is lost. */
  async attempt(name, lose, part) {
    const { text, took } = this.expected[name];
    const from = this.states.length;
    const at = Math.round(part * took);
    let over = false;
    const losing = new Promise((done) => {
      setTimeout(() => done(lose(over)), at);
    });
    const told = (state) => this.states.slice(from).filter((one) => one.state === state);
    const got = await this[name]().catch((error) => `${error.code}: ${error.message}`);
    over = true;
    await losing;
    const amid = told("lost").length > 0;
    // What comes after the operation's end belongs to this attempt too.
    const end = performance.now() + 200_000; // Chromium may make it wait for two minutes
    while (told("reopened").length === 0 && performance.now() < end) {
      await new Promise((next) => setTimeout(next, 10));
    }
    if (!amid) await this[name]();
    const wrong = [];
    if (got !== text)
      wrong.push(`it gave ${got.slice(0, 300)}, and undisturbed ${text.slice(0, 300)}`);
    if (told("reopened").length === 0) wrong.push("no device came");
    for (const state of ["different", "failed", "lost for good"]) {
      if (told(state).length > 0) wrong.push(JSON.stringify(told(state)[0]));
    }
    const [{ milliseconds = null, repeated = null } = {}] = told("recovered");
    const reopened = Math.round(told("reopened")[0]?.milliseconds ?? Number.NaN);
    const back = milliseconds === null ? null : Math.round(milliseconds);
    const sameAdapter = told("reopened")[0]?.sameAdapter;
    const waited = told("waiting").length > 0;
    const row = { operation: name, at, amid, waited, reopened, back, repeated, sameAdapter };
    return wrong.length > 0 ? { ...row, wrong: wrong.join("; ") } : row;
  }

  async #trainer() {
    const { Model, Trainer } = this.tinyloom;
    const model = await Model.create(this.runtime, this.config, { seed: 4 });
    return Trainer.create(model, this.options);
  }

  #resumed() {
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
        losses.push((await trainer.step({ tokens, targets })).loss);
      }
      return { losses, files: hashes(await trainer.save()) };
    });
  }

  async run() {
    return this.#of(await this.#trainer(), async (trainer) => {
      const metrics = await all(trainer.run(this.data, { steps: this.steps }));
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
      await all(trainer.run(this.data, { steps: 2 }));
      return hashes(await trainer.save());
    });
  }
}
