// The model of the page, for any framework. It lives in this module and not in a component: components come and go, and
// React's StrictMode mounts each of them twice. It opens with its first subscriber, so a server may import this file.
import { connect } from "tinyloom/worker";

const NAME = "the notes";
const STEPS = 200;
const CONFIG = {
  vocab_size: 256,
  hidden_size: 64,
  intermediate_size: 192,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
};

let state = { status: "Opening the worker.", busy: true, step: 0, steps: STEPS, written: "" };
const listeners = new Set();
let opening; // what is done once for each page
let controller; // of the training that is on

function change(fields) {
  state = { ...state, ...fields };
  for (const listener of listeners) listener();
}

async function open() {
  const { Runtime, Model, Trainer, Dataset, ByteTokenizer, Runs } = await connect();
  const tokenizer = new ByteTokenizer();
  const runtime = await Runtime.create();
  const runs = await Runs.open("tinyloom-react");
  const read = (text) => Dataset.fromText(text, tokenizer, { sequenceLength: 128 });
  const brain = { tokenizer };

  /** Goes on with the run of an earlier visit. */
  brain.comeBack = async () => {
    const kept = (await runs.list()).find(({ name }) => name === NAME);
    if (!kept?.checkpoints.length) return "Write some notes, then press Learn.";
    brain.run = await runs.open(NAME);
    brain.dataset = await read(await (await brain.run.data()).text());
    brain.trainer = await Trainer.resume(runtime, brain.run);
    return `Back at step ${brain.trainer.steps}.`;
  };

  brain.begin = async (text, signal) => {
    brain.dataset = await read(text);
    const model = await Model.create(runtime, CONFIG, { signal });
    try {
      const options = { learningRate: 3e-3, tokensPerStep: 512, totalSteps: STEPS };
      const trainer = await Trainer.create(model, { ...options, signal });
      // A run of an earlier visit that never had a checkpoint has the name.
      if ((await runs.list()).some(({ name }) => name === NAME)) await runs.delete(NAME);
      brain.run = await runs.create(NAME, { data: text });
      brain.trainer = trainer;
    } catch (error) {
      await model.free(); // Pause was pressed while the kernels compiled, or the storage is full
      throw error;
    }
  };

  change({ status: await brain.comeBack(), busy: false, step: brain.trainer?.steps ?? 0 });
  return brain;
}

/** One thing at a time, with its failure as the status. */
async function doing(work) {
  if (state.busy) return;
  change({ busy: true });
  try {
    await work(await opening);
  } catch (error) {
    change({ status: error.code === "aborted" ? "Paused." : error.message });
  }
  change({ busy: false });
}

/** What a component calls when the state may have changed; gives the function that ends it. */
export function subscribe(listener) {
  listeners.add(listener);
  opening ??= open().catch((error) => change({ status: error.message }));
  return () => listeners.delete(listener);
}

export const get = () => state;

async function train({ trainer, dataset, run }, signal) {
  const options = { until: STEPS, signal, checkpoint: { run, every: 20 } };
  try {
    for await (const { step, loss } of trainer.run(dataset, options)) {
      change({ step, status: `Step ${step} of ${STEPS}: loss ${loss.toFixed(3)}` });
    }
    change({ status: "Done." });
  } catch (error) {
    if (error.code !== "aborted") throw error;
    await trainer.save({ to: run }); // a run that is stopped does not save by itself
    change({ status: `Paused after step ${trainer.steps}, and saved.` });
  }
}

export const learn = (text) =>
  doing(async (brain) => {
    controller = new AbortController();
    const { signal } = controller;
    if (!brain.trainer) {
      change({ status: "Compiling." });
      await brain.begin(text, signal);
    }
    await train(brain, signal);
  });

export const pause = () => controller?.abort();

export const write = (prompt) =>
  doing(async ({ trainer, tokenizer }) => {
    change({ written: prompt });
    for await (const { text } of trainer.model.generate(prompt, { tokenizer, maxTokens: 100 })) {
      change({ written: state.written + text });
    }
  });
