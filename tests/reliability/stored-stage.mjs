// What a page, or Node, does to stored runs: every file of a run is damaged or lost, and the write of every file fails.
// Each time the error has to be clear, and a whole checkpoint has to load and go on to the same bits.
import { collect, config, dataset, trainerOptions } from "../api/bodies/kit.mjs";
import { below, numbers } from "../random.mjs";

const APP = "stored";
/** The steps of the two checkpoints that a run has, and at which what goes on from them ends. */
const [OLDER, NEWER, LAST] = [2, 4, 6];
/** Files that a checkpoint, and what is written beside it, consists of. */
const WRITTEN = [
  "config.json",
  "model.safetensors",
  "optimizer.safetensors",
  "trainer_state.json",
  "metrics.jsonl",
  "samples.jsonl",
  "manifest.json",
];

/** How a file is damaged. */
const DAMAGE = {
  "a flipped bit": (bytes, draw) => {
    const flipped = bytes.slice();
    flipped[draw(bytes.length)] ^= 1 << draw(8);
    return flipped;
  },
  "a lost end": (bytes, draw) => bytes.slice(0, draw(bytes.length)),
  "a lost file": () => undefined,
};

/** How a write fails: the error that the storage gives, and the code that the caller gets. */
export const FAILURES = {
  "a full quota": { name: "QuotaExceededError", code: "storage-full", words: /no room left/ },
  "a revoked handle": { name: "NotAllowedError", code: "invalid-options", words: /lost its right/ },
};

/** What a run keeps beside its checkpoints, and the file in which it does. */
const CONTENT = {
  data: (run) => run.data().then((blob) => blob.text()),
  tokenizer: (run) => run.tokenizer(),
};

/** Which of it is refused by name. */
async function refusals(run) {
  const refused = [];
  for (const [file, read] of Object.entries(CONTENT)) {
    const said = await read(run).then(() => "", told);
    if (said === "") continue;
    if (!said.startsWith("invalid-checkpoint: ") || !said.includes(file)) throw new Error(said);
    refused.push(file);
  }
  return refused;
}

/**
 * Where a damage lost something, and nothing told of it; or where it lost nothing, and something was told. The
 * description is there twice. Of an older checkpoint only the manifest is read, and without one it does not count.
 */
function untold({ fault, file, problems, refused }, newest) {
  const name = file.split("/").at(-1);
  const kept = name in CONTENT ? [name] : [];
  const older = name === "manifest.json" && fault !== "a lost file";
  const noticed = newest || older || name.endsWith(".jsonl");
  const named = problems.every((problem) => problem.includes(name));
  const right = `${refused}` === `${kept}` && named && problems.length === (noticed ? 1 : 0);
  return right ? undefined : `it tells ${JSON.stringify([...problems, ...refused])}`;
}

const told = (error) => `${error?.code}: ${error?.message}`;

export class Stored {
  #losses = new Map();
  #draw;

  /**
   * @param tinyloom - the package with its storage.
   * @param runs - opens the runs of an app.
   * @param disk - `list`, `read`, `write` and `remove` of the app's files.
   * @param failing - makes the writes of a file fail with an error of that name, until it is called with nothing.
   */
  constructor({ tinyloom, gpu, open, disk, failing, seed }) {
    Object.assign(this, { tinyloom, gpu, open, disk, failing });
    this.#draw = below(numbers(seed));
  }

  /** Notes the losses undisturbed. */
  async begin() {
    this.runtime = await this.tinyloom.Runtime.create(this.gpu ? { gpu: this.gpu } : {});
    this.data = await dataset(this.tinyloom);
    this.runs = await this.open(APP);
    const trainer = await this.#fresh();
    for await (const { step, loss } of trainer.run(this.data, { until: LAST })) {
      this.#losses.set(step, loss);
    }
    trainer.model.free();
    const { adapter, software } = this.runtime.capabilities;
    return { adapter, software };
  }

  async #fresh() {
    const model = await this.tinyloom.Model.create(this.runtime, config, { seed: 5 });
    return this.tinyloom.Trainer.create(model, trainerOptions);
  }

  /** A run with two checkpoints, and everything that a run may hold. */
  async #run(name) {
    const trainer = await this.#fresh();
    const run = await this.runs.create(name, {
      data: "the data",
      tokenizer: "{}",
      options: { a: 1 },
    });
    await run.addSample({ step: 0, text: "a sample" });
    const checkpoint = { run, every: OLDER, keep: 2 };
    await collect(trainer.run(this.data, { until: NEWER, checkpoint }));
    trainer.model.free();
    return run;
  }

  /** The step that a run is resumed from; an error where it goes on to other bits. */
  async #resumed(run) {
    const trainer = await this.tinyloom.Trainer.resume(this.runtime, run);
    const from = trainer.steps;
    for await (const { step, loss } of trainer.run(this.data, { until: from + 2 })) {
      if (loss !== this.#losses.get(step)) throw new Error(`another loss at step ${step}`);
    }
    trainer.model.free();
    return from;
  }

  /**
   * Damages each file of a run, each in so many ways.
   *
   * @returns rows `{ fault, file, from, wrong }`: the step gone on from, or the error.
   */
  async damages(times) {
    const run = await this.#run("one");
    const { id } = run;
    await run.close();
    const paths = (await this.disk.list(APP)).filter((path) => path.startsWith(`${id}/`));
    const numberOf = (path) => Number(/\/c(\d+)\//.exec(path)?.[1] ?? 0);
    const newest = Math.max(...paths.map(numberOf));
    const rows = [];
    for (const path of paths) {
      const whole = await this.disk.read(APP, path);
      for (const [fault, damage] of Object.entries(DAMAGE)) {
        for (let time = 0; time < (damage.length === 0 ? 1 : times); time++) {
          const bytes = damage(whole, this.#draw);
          if (bytes) await this.disk.write(APP, path, bytes);
          else await this.disk.remove(APP, path);
          const { problems, refused, ...end } = await this.#reopened();
          const row = { fault, file: path.slice(id.length + 1), ...end };
          if (problems) row.told = [...problems, ...refused].join("; ");
          const expected = numberOf(path) === newest ? OLDER : NEWER;
          if (row.from !== expected) row.wrong = row.error ?? `step ${row.from}`;
          else row.wrong = untold({ ...row, problems, refused }, numberOf(path) === newest);
          rows.push(row);
          await this.disk.write(APP, path, whole);
        }
      }
    }
    await this.runs.delete("one");
    return rows;
  }

  async #reopened() {
    let run;
    try {
      run = await this.runs.open("one");
      const from = await this.#resumed(run);
      return { from, problems: run.problems, refused: await refusals(run) };
    } catch (error) {
      return { error: told(error) };
    } finally {
      await run?.close();
    }
  }

  /** A save into the run after two more steps; what it says. */
  async #save(run) {
    const trainer = await this.tinyloom.Trainer.resume(this.runtime, run);
    await run.addSample({ step: trainer.steps, text: "another" });
    const checkpoint = { run, every: 1, keep: 2 };
    const said = await collect(trainer.run(this.data, { steps: 1, checkpoint })).then(
      () => "saved",
      told,
    );
    trainer.model.free();
    return said;
  }

  /** What a failed write of this file may not change, and what it says. */
  async #failed(run, file, said, { code, words }) {
    const before = (await run.checkpoints()).map(({ step }) => step);
    const from = await this.#resumed(run).catch(told);
    const row = { file, said, from };
    const problems = [];
    if (!said.startsWith(`${code}: `) || !words.test(said)) problems.push(`it says ${said}`);
    if (from !== NEWER || before[0] !== NEWER)
      problems.push(`it goes on from ${from}, of ${before}`);
    return problems.length > 0 ? { ...row, wrong: problems.join("; ") } : row;
  }

  /** The write of each file fails. Rows as above. */
  async failures() {
    const rows = [];
    for (const [fault, failure] of Object.entries(FAILURES)) {
      const run = await this.#run("one");
      for (const file of WRITTEN) {
        await this.failing(file, failure.name);
        const said = await this.#save(run);
        await this.failing();
        rows.push({ fault, ...(await this.#failed(run, file, said, failure)) });
      }
      await run.close();
      await this.runs.delete("one");
    }
    return rows;
  }

  /** A run with two checkpoints for a quota that the browser keeps to; gives the bytes of one. */
  async beginQuota() {
    this.run = await this.#run("one");
    const [{ bytes }] = await this.run.checkpoints();
    const { usage } = await navigator.storage.estimate();
    return { bytes, usage };
  }

  /** Whether the next checkpoint has room, the quota being what it is. */
  async meetQuota() {
    const said = await this.#save(this.run);
    const file = /^storage-full: ([\w.]+)/.exec(said)?.[1] ?? "judged before";
    return { fault: "a full quota", ...(await this.#failed(this.run, file, said, QUOTA)) };
  }

  async endQuota() {
    await this.run.close();
    await this.runs.delete("one");
  }
}

/** What the browser's own quota gives: before anything is written, or in the midst of it. */
const QUOTA = { code: "storage-full", words: /no room left|does not fit/ };

/** In a page: makes writes of a file fail, each with an error of that name. */
export function failingStreams() {
  const { prototype } = globalThis.FileSystemFileHandle;
  const { createWritable } = prototype;
  let [file, name] = [];
  prototype.createWritable = async function (...options) {
    const stream = await createWritable.apply(this, options);
    if (this.name !== file) return stream;
    const failed = new DOMException("on purpose", name);
    if (name === "NotAllowedError") {
      await stream.abort();
      throw failed;
    }
    stream.write = () => Promise.reject(failed);
    return stream;
  };
  return (...next) => {
    [file, name] = next;
  };
}

/** In a second tab: the outcome of each call on a run that the first tab has open. */
export async function otherTab({ Runs }) {
  const runs = await Runs.open(APP);
  const calls = {
    open: () => runs.open("shared"),
    delete: () => runs.delete("shared"),
    rename: () => runs.rename("shared", "other"),
    create: () => runs.create("shared"),
  };
  const rows = [];
  for (const [name, call] of Object.entries(calls)) {
    const said = await call().then(() => "done", told);
    const clear = name === "create" ? /^invalid-options: .*shared/ : /^in-use: .*another tab/;
    rows.push({ fault: "two tabs", file: name, said, ...(!clear.test(said) && { wrong: said }) });
  }
  return rows;
}
