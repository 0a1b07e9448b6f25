// What a program does with runs in a folder: it trains with checkpoints, leaves, comes back and goes on.
import { readdir, writeFile } from "node:fs/promises";
import process from "node:process";
import { fileURLToPath } from "node:url";

const TEXT = "the cat sat on the mat, and the dog sat on the log. ".repeat(30);
const CONFIG = {
  vocab_size: 256,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  tie_word_embeddings: true,
};
/** Steps of the checkpoints, and of the run. */
const [EVERY, LEFT, LAST] = [3, 6, 10];

async function fresh({ Model, Trainer }, runtime) {
  const model = await Model.create(runtime, CONFIG, { seed: 1 });
  return Trainer.create(model, { tokensPerStep: 128, totalSteps: LAST, seed: 1 });
}

async function losses(run) {
  const all = [];
  for await (const { loss } of run) all.push(loss);
  return all;
}

/** Where another process has a run open: what this one is told. */
async function otherProcess(runs, folder, id) {
  const lock = `${fileURLToPath(folder)}/${id}.lock`;
  await writeFile(lock, String(process.ppid));
  const { code } = await runs.open("one").catch((error) => error);
  await writeFile(lock, "2147483646"); // of a process that has ended
  return code;
}

/**
 * @param options - of `Runtime.create`.
 * @returns where the runs were, and what came of the second half of one.
 */
export async function stored(tinyloom, { Runs }, options = {}) {
  const { ByteTokenizer, Dataset, Runtime, Trainer } = tinyloom;
  const runtime = await Runtime.create(options);
  const data = await Dataset.fromText(TEXT, new ByteTokenizer(), { sequenceLength: 32, seed: 1 });
  const expected = await losses((await fresh(tinyloom, runtime)).run(data, { until: LAST }));

  const folder = new URL("runs", import.meta.url);
  const runs = await Runs.open("host", { folder });
  const run = await runs.create("one", { data: TEXT });
  const trainer = await fresh(tinyloom, runtime);
  const checkpoint = { run, every: EVERY, keep: 2 };
  const first = await losses(trainer.run(data, { until: LEFT, checkpoint }));
  const twice = await (await Runs.open("host", { folder })).open("one").catch(({ code }) => code);
  const { id } = run;
  await run.close();
  const other = await otherProcess(runs, folder, id);

  const again = await (await Runs.open("host", { folder })).open("one");
  const steps = (await again.checkpoints()).map(({ step }) => step);
  const resumed = await Trainer.resume(runtime, again);
  const second = await losses(resumed.run(data, { until: LAST }));
  const kept = (await (await again.data()).text()) === TEXT;
  await again.close();
  const room = (await runs.room()) > 0;
  await runs.delete("one");
  const left = await readdir(folder);
  runtime.destroy();
  const same = JSON.stringify([...first, ...second]) === JSON.stringify(expected);
  return JSON.stringify({ where: runs.where, steps, same, kept, room, twice, other, left });
}
