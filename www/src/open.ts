/** How a training comes to be: new, from a run that was kept, or from the files of a model. */
import { type Model, type StoredRun, TinyloomError, type Trainer } from "tinyloom/worker";
import { codecOf, type Data, freeData, loadData } from "./data.ts";
import type { Lab } from "./lab.ts";
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
import { Training } from "./training.ts";

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
  const learned = vocabulary === undefined ? undefined : await learnTokens(lab, text, vocabulary);
  if (learned && learned.words < vocabulary! && !fewer) throw tooFew(learned.words, vocabulary!);
  const codec = await codecOf(lab, learned?.json ?? pretrained?.tokenizer);
  const settings = learned ? withWords(beginning.settings, learned.words) : beginning.settings;
  // The worker reads the text while the GPU's driver compiles.
  const [trainer, data] = await both(
    madeTrainer(lab, pretrained?.model, settings),
    loadData(lab, settings, text, codec),
  );
  return orFreed(trainer.model, data, async () => {
    const stories = text.judge !== undefined;
    const kept = { name: text.name, stories, task: text.task, hash: data.dataset.hash };
    const options = { settings, text: kept, pretrained: pretrained !== undefined };
    const content: Content = { data: text.bytes, options };
    if (codec.json !== undefined) content.tokenizer = codec.json;
    const run = await store.create(name, content, lasting);
    const parts = { settings, text, data, trainer, run, pretrained: options.pretrained };
    try {
      return await Training.of(store, parts);
    } catch (error) {
      await run.close();
      await store.delete(run.name);
      throw error;
    }
  });
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

/** The tokenizer.json of tokens that are learned from a text, and how many they are. */
async function learnTokens(lab: Lab, { bytes }: Text, vocabSize: number) {
  const tokenizer = await lab.BpeTokenizer.train(bytes, { vocabSize });
  const json = new TextDecoder().decode((await tokenizer.save())["tokenizer.json"]);
  return { json, words: tokenizer.vocabSize };
}

const tooFew = (words: number, wanted: number): TinyloomError =>
  new TinyloomError(
    "invalid-options",
    `the text has only enough groups of letters for ${words} tokens, not for ${wanted}; ` +
      "choose a smaller vocabulary, or give more text",
  );

/** Kernels are quicker where the vocabulary is a multiple of this. */
const MULTIPLE = 4;

/** Settings of a model whose vocabulary is no larger than the tokens that there are. */
function withWords(settings: RunSettings, words: number): RunSettings {
  const vocabulary = MULTIPLE * Math.ceil(words / MULTIPLE);
  if (vocabulary >= (settings.config.vocab_size ?? vocabulary)) return settings;
  return { ...settings, config: { ...settings.config, vocab_size: vocabulary } };
}

/** A new model of these settings. */
export const newModel = (lab: Lab, { config, seed }: RunSettings): Promise<Model> =>
  lab.Model.create(lab.runtime, config, { seed });

export function newTrainer(lab: Lab, model: Model, settings: RunSettings): Promise<Trainer> {
  const { seed, tokensPerStep, learningRate, minLearningRate, steps } = settings;
  return lab.Trainer.create(model, {
    tokensPerStep,
    learningRate,
    totalSteps: steps,
    seed,
    ...(minLearningRate !== undefined && { minLearningRate }),
  });
}

/** A trainer of this model, or of a new one. If there comes to be none, the model is freed. */
async function madeTrainer(
  lab: Lab,
  given: Model | undefined,
  settings: RunSettings,
): Promise<Trainer> {
  const model = given ?? (await newModel(lab, settings));
  return orFreed(model, undefined, () => newTrainer(lab, model, settings));
}

/** A trainer and data. If one fails, the other with its model is freed. */
async function both(
  trainer: Promise<Trainer>,
  data: Promise<Data>,
): Promise<[trainer: Trainer, data: Data]> {
  const [made, read] = await Promise.allSettled([trainer, data]);
  if (made.status === "fulfilled" && read.status === "fulfilled") return [made.value, read.value];
  if (made.status === "fulfilled") await made.value.model.free();
  if (read.status === "fulfilled") await freeData(read.value);
  throw made.status === "rejected" ? made.reason : (read as PromiseRejectedResult).reason;
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
