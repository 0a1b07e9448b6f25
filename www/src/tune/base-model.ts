/** What an adapter is put on, as the panel sees it, and the runs of this page as such. */
import {
  type Model,
  type ModelConfig,
  type StoredRun,
  TinyloomError,
  type WeightFormat,
} from "tinyloom/worker";
import { type Codec, codecOf } from "../data.ts";
import type { Lab } from "../lab.ts";
import { keptOf, type RunStore, tokenizerOf } from "../run-store.ts";
import { isTaskName, type TaskName, tasks } from "../tasks/index.ts";
import { END } from "../tasks/task.ts";
import type { Training } from "../training.ts";

/** What `Model.fromPretrained` reports. */
type Told = (progress: { loaded: number; total: number; stage: string }) => void;

/** A model that is not loaded yet, and how chats become its tokens. */
export interface BaseModel {
  readonly name: string;
  readonly config: ModelConfig;
  readonly codec: Codec;
  /** The chat template in Jinja. */
  readonly template: string;
  /** Whose that is. */
  readonly templateOf: "model" | "task" | "page";
  /** The task whose problems it has learned. */
  readonly task: TaskName | undefined;
  /** The most tokens that it sees at once. */
  readonly context: number;
  load(weights: WeightFormat, signal: AbortSignal, onProgress: Told): Promise<Model>;
}

export const refused = (words: string): TinyloomError =>
  new TinyloomError("invalid-options", words);

/** For a model that has no template of its own. */
const PLAIN =
  "{% for message in messages %}" +
  "{{ 'You: ' if message.role == 'user' else 'It: ' if message.role == 'assistant' else '' }}" +
  "{{ message.content }}\n{% endfor %}{% if add_generation_prompt %}It:{% endif %}";

/** A problem and its answer, as the task has them. */
const ofTask = (name: TaskName): string =>
  "{% for message in messages %}{{ message.content }}" +
  `{{ ${JSON.stringify(tasks[name].mark)} if message.role == 'user' else '\\n' }}{% endfor %}`;

/** The model's own template, else its task's, else the page's. */
export function templateFor(
  codec: Codec,
  task: TaskName | undefined,
): Pick<BaseModel, "template" | "templateOf"> {
  if (codec.template) return { template: codec.template, templateOf: "model" };
  if (task) return { template: ofTask(task), templateOf: "task" };
  return { template: PLAIN, templateOf: "page" };
}

/**
 * The model of a run, at its newest checkpoint.
 *
 * @throws TinyloomError `invalid-options` for a run that this page has not made.
 */
export async function baseOfRun(
  lab: Lab,
  store: RunStore,
  name: string,
  current: Training | undefined,
): Promise<BaseModel> {
  /** Opens the run for a moment; that of the page is open already. */
  const within = async <T>(work: (run: StoredRun) => Promise<T>): Promise<T> => {
    if (current?.run.name === name) return work(current.run);
    const run = await store.open(name);
    try {
      return await work(run);
    } finally {
      await run.close();
    }
  };
  return within(async (run) => {
    const kept = keptOf(run);
    if (!kept) throw refused(`“${name}” was not made by this page, so its settings are not known.`);
    const { settings, text } = kept;
    const own = await codecOf(lab, await tokenizerOf(run));
    const task = own.json === undefined && isTaskName(text.task) ? text.task : undefined;
    // A line break ends an answer of a task; the template alone does not say so, since other answers have several lines.
    const codec = task ? { ...own, endToken: END } : own;
    const { config, sequenceLength } = settings;
    return {
      name,
      config,
      codec,
      task,
      ...templateFor(codec, task),
      context: sequenceLength,
      load: (weights, signal, onProgress) =>
        within((opened) => loadRun(lab, opened, weights, { signal, onProgress })),
    };
  });
}

/**
 * A run's model. Packed, it is loaded from its files: after a lost GPU these are read again, and by then the run may
 * have been closed.
 */
async function loadRun(
  lab: Lab,
  run: StoredRun,
  weights: WeightFormat,
  long: { signal: AbortSignal; onProgress: Told },
): Promise<Model> {
  const model = await lab.Model.fromPretrained(lab.runtime, run, long);
  if (weights === "f32") return model;
  const files = await model.save().finally(() => model.free());
  return lab.Model.fromPretrained(lab.runtime, files, { weights, ...long });
}
