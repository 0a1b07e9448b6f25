// Calls with nonsense through every export and member of the public API. Each gives a result or a TinyloomError
// that is not "internal", within its time, and leaves the objects as they were.
import { CONFIG, goodOf, NONSENSE } from "./hostile-arguments.mjs";
import { wrongError } from "./hostile-files.mjs";

/** Milliseconds that a call may take, on a busy machine. */
const LIMIT = 30_000;
/** Calls between two looks at the objects. */
const LOOK = 50;
/** Items that are taken of an iterable. */
const ITEMS = 2;

/** Names of an object's members and of what it inherits. */
function membersOf(object) {
  const found = new Set();
  for (let one = object; one && one !== Object.prototype && one !== Function.prototype; ) {
    for (const name of Object.getOwnPropertyNames(one)) found.add(name);
    one = Object.getPrototypeOf(one);
  }
  const others =
    /^(_.*|length|name|prototype|constructor|captureStackTrace|prepareStackTrace|stackTraceLimit)$/;
  return [...found].filter((name) => !others.test(name));
}

/** Calls that end an object that others need: they are made on one of their own. */
const ENDING = /#(free|merge|destroy|simulateLoss|close|delete)$/;
/** These open threads or devices: one in so many draws is made. */
const SELDOM = { connect: 40, "Runtime.create": 8 };

/** The objects that calls are made on, and the calls. */
export class Calls {
  counts = { returned: 0, refused: {} };
  #tinyloom;
  #gpu;
  #made = 0;
  /** Those that other calls need. */
  #models = [];

  constructor(tinyloom, gpu) {
    this.#tinyloom = tinyloom;
    this.#gpu = gpu;
  }

  async open() {
    const { Runtime, Model, Trainer, Adapter, Dataset, BpeTokenizer, ByteTokenizer, Runs } =
      this.#tinyloom;
    const runtime = await Runtime.create({ gpu: this.#gpu, recover: false });
    this.adapter = runtime.capabilities.adapter;
    const model = await Model.create(runtime, CONFIG, { seed: 1 });
    const trainer = await Trainer.create(model, { tokensPerStep: 8, seed: 1, totalSteps: 1e6 });
    const still = await Model.create(runtime, CONFIG, { seed: 2 });
    const adapter = await Adapter.create(still, { rank: 2 });
    const data = await Dataset.fromTokens(
      Uint32Array.from({ length: 90 }, (_, i) => i % 30),
      { sequenceLength: 4 },
    );
    const tokenizer = await BpeTokenizer.train("some text ".repeat(20), { vocabSize: 262 });
    const runs = await Runs.open("calls", { memory: true });
    await (await runs.create("one", { data: "x" })).close();
    const run = await runs.create("kept", { data: "x" });
    const files = await trainer.save();
    const adapterFiles = await adapter.save();
    const tensor = () => runtime.tensor([1, 2, 3, 4], [2, 2]);
    this.objects = {
      Runtime: runtime,
      Model: still,
      Trainer: trainer,
      Adapter: adapter,
      Dataset: data,
      Tensor: await tensor(),
      Runs: runs,
      StoredRun: run,
      ByteTokenizer: new ByteTokenizer(),
      BpeTokenizer: tokenizer,
      TinyloomError: new this.#tinyloom.TinyloomError("freed", "x"),
    };
    this.good = goodOf({
      runtime,
      model,
      still,
      adapter,
      adapterFiles,
      trainer,
      data,
      tokenizer,
      byte: new ByteTokenizer(),
      files,
      tensor,
      gpu: this.#gpu,
    });
    this.#models = [model, still];
    this.#list();
    this.expected = await this.#look();
  }

  /** Every export and member: `{ name, call }`. */
  #list() {
    const targets = [];
    const add = (name, call) => targets.push({ name, call });
    for (const [key, value] of Object.entries(this.#tinyloom)) {
      if (typeof value !== "function" || key === "serve" || key === "transfer") continue;
      const isClass = value.prototype !== undefined && /^class/.test(String(value));
      if (!isClass) {
        add(key, (args) => value(...args));
        continue;
      }
      add(`new ${key}`, (args) => new value(...args));
      for (const name of membersOf(value)) add(`${key}.${name}`, (args) => value[name](...args));
    }
    for (const [key, object] of Object.entries(this.objects)) {
      for (const name of membersOf(object)) {
        const target = `${key}#${name}`;
        if (ENDING.test(target) || target === "Runtime#lost") continue; // that promise stays open
        let owner = object;
        while (!Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner);
        const { value, set } = Object.getOwnPropertyDescriptor(owner, name);
        if (typeof value === "function") add(target, (args) => object[name](...args));
        else if (set)
          add(target, ([given]) => {
            object[name] = given;
          });
        else add(target, () => void object[name]);
        // On what is no object of the class.
        if (typeof value === "function")
          add(`${target} of another`, (args) => value.apply(args[0], args.slice(1)));
      }
    }
    const { ops } = this.#tinyloom;
    if (ops) add("ops.softmax", (args) => ops.softmax(...args));
    for (const name of Object.keys(ops?.attention ?? {}))
      add(`ops.attention.${name}`, (args) => ops.attention[name](...args));
    this.targets = targets;
  }

  /** A call, with one or more of its arguments replaced. */
  draw(chance) {
    let target;
    do target = chance.of(this.targets);
    while (chance.next() > 1 / (SELDOM[target.name] ?? 1));
    const { name, call } = target;
    const good = typeof this.good[name] === "function" ? this.good[name]() : [];
    const args =
      good.length > 0
        ? spoilt(good, chance)
        : Array.from({ length: chance.below(4) }, () => chance.of(NONSENSE)());
    return { name, call, args, text: () => args.map(shown).join(", ").slice(0, 800) };
  }

  /** Makes a call; gives what is wrong with how it ended, if anything. */
  async make({ name, call, args }) {
    let timer;
    const late = new Promise((done) => {
      timer = setTimeout(() => done("late"), LIMIT);
    });
    let wrong;
    try {
      const given = (async () => ended(await call(args), this.#models))();
      if ((await Promise.race([given, late])) === "late")
        wrong = `it did not end within ${LIMIT} ms`;
      else this.counts.returned += 1;
    } catch (error) {
      const code = error?.code ?? error?.name;
      this.counts.refused[code] = (this.counts.refused[code] ?? 0) + 1;
      // `new` on a class whose objects functions make, and a method of nobody: the language's own error will do.
      const own = error instanceof TypeError || error?.message === "boom";
      const language = own && /^new |of another$/.test(name);
      wrong = language ? undefined : wrongError(error);
    }
    clearTimeout(timer);
    // Any rate above 0 may be set, and one too large would spoil the weights.
    if (name === "Trainer#learningRate") await this.#rateAgain();
    this.#made += 1;
    if (!wrong && this.#made % LOOK === 0) {
      const found = await this.#look();
      if (found !== this.expected) wrong = `the objects are ${parted(found, this.expected)}`;
    }
    return wrong;
  }

  /** A trainer in a worker tells at its next call that it refused the rate before. */
  async #rateAgain() {
    const { Trainer: trainer } = this.objects;
    trainer.learningRate = 1e-3;
    try {
      await trainer.plan();
    } catch {}
  }

  /** What no call may change. */
  async #look() {
    const { Model: model, Dataset: data, Tensor: tensor, ByteTokenizer: byte } = this.objects;
    const logits = await model.logits([1, 2, 3]);
    const numbers = [...logits.slice(0, 4)].map((x) => x.toFixed(6));
    const metrics = await this.objects.Trainer.step({ tokens: [1, 2], targets: [2, 3] });
    if (!Number.isFinite(metrics.loss)) return `a loss of ${metrics.loss}`;
    return `${numbers} ${data.hash} ${data.tokens} ${tensor.shape} ${byte.encode("a")} ${JSON.stringify(model.config)}`;
  }
}

/** Where a text parts from another, and how it was there. */
function parted(found, expected) {
  let at = 0;
  while (found[at] === expected[at]) at += 1;
  return `…${found.slice(at, at + 60)}, and were …${expected.slice(at, at + 60)}`;
}

/** Whether this is a plain object; a proxy that throws is not. */
export function isPlain(value) {
  try {
    return Object.getPrototypeOf(value ?? 0) === Object.prototype;
  } catch {
    return false;
  }
}

/** Good arguments with some of them, or fields of their objects, replaced. */
function spoilt(good, chance) {
  const args = [...good];
  for (let times = chance.of([0, 1, 1, 1, 2, 3]); times > 0; times--) {
    const at = chance.below(args.length + (chance.below(8) === 0 ? 1 : 0));
    const one = args[at];
    if (one === good[at] && isPlain(one) && chance.next() < 0.75) {
      const key = chance.of([...Object.keys(one), "signal", "onProgress", "unknown"]);
      args[at] = { ...one, [key]: chance.of(NONSENSE)() };
    } else {
      args[at] = chance.of(NONSENSE)();
    }
  }
  return chance.below(12) === 0 ? args.slice(0, chance.below(args.length + 1)) : args;
}

/**
 * Takes a few items of an iterable, and frees what was made.
 *
 * @param models - stay.
 */
async function ended(result, models) {
  if (typeof result?.[Symbol.asyncIterator] === "function" && typeof result.next === "function") {
    let items = 0;
    for await (const _ of result) if (++items >= ITEMS) break;
    return;
  }
  if (result?.model && typeof result.step === "function") {
    result.free();
    if (!models.includes(result.model)) result.model.free(); // of `Trainer.resume`
    return;
  }
  if (typeof result?.close === "function") return void (await result.close());
  if (typeof result?.tensor === "function") return void result.destroy();
  if (typeof result?.logits === "function" || typeof result?.data === "function") result.free();
}

function shown(value) {
  try {
    if (
      typeof value === "object" &&
      value !== null &&
      Object.getPrototypeOf(value) === Object.prototype
    ) {
      return `{${Object.entries(value).map(([key, one]) => `${key}: ${shown(one)}`)}}`;
    }
    if (Array.isArray(value)) return `[${value.map(shown)}]`;
    if (typeof value === "bigint") return `${value}n`;
    return `${Object.prototype.toString.call(value)} ${String(value).slice(0, 40)}`;
  } catch {
    return "?";
  }
}
