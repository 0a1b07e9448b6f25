/** How a training comes to be: new, from a run that was kept, or from the files of a model. */
import {
  type Model,
  type StoredRun,
  TinyloomError,
  type Trainer,
  type TrainerOptions,
} from "tinyloom/worker";
import { codecOf, type Data, freeData, loadData } from "./data.ts";
import type { Lab } from "./lab.ts";
import { LETTERS } from "./presets.ts";
import {
  type Content,
  dataOf,
  type Kept,
  keptOf,
  type RunStore,
  tokenizerOf,
} from "./run-store.ts";
import type { RunSettings } from "./settings.ts";
import { keptText, type Text } from "./text.ts";
import { type Parts, Training } from "./training.ts";

/** What a new training starts from. */
export interface Beginning {
  /** The run's name; if one has it, a number follows it. */
  name: string;
  settings: RunSettings;
  text: Text;
  /** Tokens to learn from the text; without it letters are the tokens. */
  vocabulary?: number | undefined;
  /** Whether a text with too few groups of letters may have fewer tokens. */
  fewer?: boolean;
  /** A model to go on with instead of a new one, and its tokenizer.json if it has one. */
  pretrained?: { model: Model; tokenizer: string | undefined };
  /** Whether the run outlives the page; by default it does. */
  lasting?: boolean;
}

/** A training of a new run. */
export async function beginRun(lab: Lab, store: RunStore, beginning: Beginning): Promise<Training> {
  const { name, text, pretrained, lasting, vocabulary, fewer = false } = beginning;
  const learned =
    vocabulary === undefined ? undefined : await learnTokens(lab, text, vocabulary, fewer);
  const codec = await codecOf(lab, learned?.json ?? pretrained?.tokenizer);
  const settings = learned ? withWords(beginning.settings, learned.words) : beginning.settings;
  // The worker reads the text, and makes the run, while the GPU's driver compiles.
  const making = madeTrainer(lab, pretrained?.model, settings);
  const read = loadData(lab, settings, text, codec);
  const stories = text.judge !== undefined;
  const kept = async () => {
    const about = { name: text.name, stories, task: text.task, hash: (await read).dataset.hash };
    const options = { settings, text: about, pretrained: pretrained !== undefined };
    const content: Content = { data: text.bytes, options };
    if (codec.json !== undefined) content.tokenizer = codec.json;
    return store.create(name, content, lasting);
  };
  const parts = await all(store, making, read, kept());
  const { trainer, data, run } = parts;
  return orFreed(trainer.model, data, async () => {
    try {
      const begun = { settings, text, pretrained: pretrained !== undefined, ...parts };
      return await Training.of(store, begun);
    } catch (error) {
      await abandon(store, run);
      throw error;
    }
  });
}

async function abandon(store: RunStore, run: StoredRun): Promise<void> {
  await run.close();
  await store.delete(run.name);
}

/**
 * A training of a run that was kept, at its newest checkpoint.
 *
 * @param chosen - the text to go on with where none was kept with the run.
 * @throws TinyloomError `in-use` where another tab has the run open; `invalid-options` where the run learned from
 * another text than the chosen one.
 */
export async function openRun(
  lab: Lab,
  store: RunStore,
  name: string,
  chosen: (settings: RunSettings) => Promise<Text>,
): Promise<Training> {
  const run = await store.open(name);
  try {
    const kept = keptOf(run);
    if (!kept) throw foreign(run, "was not made by this page, so its settings are not known");
    const { settings, text: about } = kept;
    const bytes = await dataOf(run);
    const text = bytes
      ? await keptText(about, bytes)
      : await chosen(settings).catch(() => {
          throw withoutText(run, about.name, "Here no text is chosen that is long enough.");
        });
    const codec = await codecOf(lab, await tokenizerOf(run));
    const data = await loadData(lab, settings, text, codec);
    if (data.dataset.hash !== about.hash) {
      await freeData(data);
      throw withoutText(run, about.name, `The text chosen here, “${text.name}”, is another.`);
    }
    const trainer = await lastOf(lab, run, kept);
    return await orFreed(trainer.model, data, () =>
      Training.of(store, { settings, text, data, trainer, run, pretrained: kept.pretrained }),
    );
  } catch (error) {
    await run.close();
    throw error;
  }
}

/** The trainer of the newest checkpoint; where there is none, a new one: its first steps are the same again. */
async function lastOf(lab: Lab, run: StoredRun, { settings, pretrained }: Kept): Promise<Trainer> {
  const checkpoints = await run.checkpoints();
  if (checkpoints.some(({ step }) => step !== null)) return lab.Trainer.resume(lab.runtime, run);
  if (pretrained) throw foreign(run, "ended before its model was stored; import the model again");
  return newTrainer(lab, await newModel(lab, settings), settings);
}

/** Kernels are quicker where the vocabulary is a multiple of this. */
const MULTIPLE = 4;

/**
 * The tokenizer.json of tokens that are learned from a text, and how many they are.
 *
 * @param fewer - whether they may be fewer than wanted.
 */
async function learnTokens(lab: Lab, { bytes }: Text, wanted: number, fewer: boolean) {
  const train = (vocabSize: number) => lab.BpeTokenizer.train(bytes, { vocabSize });
  let tokenizer = await train(wanted);
  const { vocabSize: words } = tokenizer;
  if (words < wanted && !fewer) throw tooFew(words, wanted);
  // Some are left out, though all are learned again for that: a model of more tokens than there are may write one that
  // is no text.
  const most = words - (words % MULTIPLE);
  if (most < words && most > LETTERS) tokenizer = await train(most);
  const json = new TextDecoder().decode((await tokenizer.save())["tokenizer.json"]);
  return { json, words: tokenizer.vocabSize };
}

const tooFew = (words: number, wanted: number): TinyloomError =>
  new TinyloomError(
    "invalid-options",
    `the text has only enough groups of letters for ${words} tokens, not for ${wanted}; ` +
      "choose a smaller vocabulary, or give more text",
  );

/** Settings of a model whose vocabulary is the tokens that there are. */
const withWords = (settings: RunSettings, words: number): RunSettings => ({
  ...settings,
  config: { ...settings.config, vocab_size: words },
});

/** A new model of these settings. */
export const newModel = (lab: Lab, { config, seed }: RunSettings): Promise<Model> =>
  lab.Model.create(lab.runtime, config, { seed });

export const newTrainer = (lab: Lab, model: Model, settings: RunSettings): Promise<Trainer> =>
  lab.Trainer.create(model, trainerOptions(settings));

function trainerOptions(settings: RunSettings): TrainerOptions {
  const { seed, tokensPerStep, learningRate, minLearningRate, steps } = settings;
  return {
    tokensPerStep,
    learningRate,
    totalSteps: steps,
    seed,
    ...(minLearningRate !== undefined && { minLearningRate }),
  };
}

/** A trainer of this model, or of a new one. If there comes to be none, the model is freed. */
async function madeTrainer(
  lab: Lab,
  given: Model | undefined,
  settings: RunSettings,
): Promise<Trainer> {
  const compiled = given ? undefined : compileAhead(lab, settings);
  const model = given ?? (await newModel(lab, settings));
  await compiled;
  return orFreed(model, undefined, () => newTrainer(lab, model, settings));
}

/** Begins to compile a trainer's kernels: a GPU's driver does so while the model is made. A CPU would make both later. */
async function compileAhead({ Trainer, runtime }: Lab, settings: RunSettings): Promise<void> {
  if (runtime.capabilities.software) return;
  const compiled = Trainer.prepare(runtime, settings.config, trainerOptions(settings));
  await compiled.catch(() => undefined); // making the trainer reports the error
}

/** What a training is made of. If a part fails, the others are given back. */
async function all(
  store: RunStore,
  ...parts: [trainer: Promise<Trainer>, data: Promise<Data>, run: Promise<StoredRun>]
): Promise<Pick<Parts, "trainer" | "data" | "run">> {
  try {
    const [trainer, data, run] = await Promise.all(parts);
    return { trainer, data, run };
  } catch (error) {
    const [trainer, data, run] = await Promise.allSettled(parts);
    if (trainer.status === "fulfilled") await trainer.value.model.free();
    if (data.status === "fulfilled") await freeData(data.value);
    if (run.status === "fulfilled") await abandon(store, run.value);
    throw error;
  }
}

/** What is made of a model and its data, if there are some yet. If that fails, both are freed. */
export async function orFreed<T>(
  model: Model,
  data: Data | undefined,
  make: () => Promise<T>,
): Promise<T> {
  try {
    return await make();
  } catch (error) {
    await model.free();
    if (data) await freeData(data);
    throw error;
  }
}

const foreign = (run: StoredRun, why: string): TinyloomError =>
  new TinyloomError("invalid-options", `“${run.name}” ${why}`);

function withoutText(run: StoredRun, learned: string, chosen: string): TinyloomError {
  return new TinyloomError(
    "invalid-options",
    `“${run.name}” was saved without its text, and has learned from “${learned}”. ${chosen} ` +
      "Choose the text that it has learned from, and resume it in the list of runs.",
  );
}
