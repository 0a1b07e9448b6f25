/** Distillation: a student learns what a teacher says of each token. */

import type { Dataset } from "../dataset.js";
import { throwIfAborted } from "../error.js";
import type { Model } from "../model.js";
import {
  abortSignal,
  check,
  integer,
  invalid,
  number,
  oneOf,
  type Rules,
  show,
} from "../options.js";
import type { DatasetDocument } from "../text/types.js";
import { IGNORE_INDEX } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import { type Anywhere, expectCount, expectFits, expectModel, expectTrainer } from "./checks.js";
import { mixed } from "./rollouts.js";
import { type AlignCheckpoint, checkpointRule, keeper } from "./stored.js";

/** Options of {@link distill}. */
export interface DistillOptions {
  /** Divides the logits of both; default 2. The divergence is multiplied by its square. */
  temperature?: number;
  /** The share of the divergence in the loss; the cross-entropy of the data has the rest. Default 0.5. */
  share?: number;
  /** How many of the teacher's likeliest ids count one by one, from 1 to 64; default 64, or the vocabulary. */
  ids?: number;
  /** `"forward"`, the default, is KL(teacher ‖ student), `"reverse"` KL(student ‖ teacher). */
  direction?: "forward" | "reverse";
  /**
   * With `"class"`, the default, what the ids leave over is one further class of both; with `"renormalize"` both are
   * renormalised over the ids.
   */
  rest?: "class" | "renormalize";
  /** Documents in a micro-step; default as many of the dataset's `sequenceLength` as fit into `tokensPerStep`. */
  documentsPerStep?: number;
  /** Optimizer steps; default as many as go over the training split once. */
  steps?: number;
  /** Saves into storage. A trainer that is resumed from it goes on to the bit. */
  checkpoint?: AlignCheckpoint;
  signal?: AbortSignal;
}

const DISTILL: Rules<DistillOptions> = {
  temperature: number(1e-6, 1e6),
  share: number(0, 1),
  ids: integer(1, 64),
  direction: oneOf("forward", "reverse"),
  rest: oneOf("class", "renormalize"),
  documentsPerStep: integer(1),
  steps: integer(1),
  checkpoint: checkpointRule,
  signal: abortSignal,
};

/** The numbers below `count` in an order that follows from the seed (Fisher and Yates). */
function order(count: number, seed: number): Uint32Array {
  const all = Uint32Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = mixed(seed, i) % (i + 1);
    [all[i], all[j]] = [all[j] as number, all[i] as number];
  }
  return all;
}

/** Gives documents by their place in a sequence of epochs, each in an order of its own. */
function drawing(dataset: Dataset, seed: number) {
  let epoch = -1;
  let places: Uint32Array = new Uint32Array();
  return (place: number): Promise<DatasetDocument> => {
    const of = Math.floor(place / dataset.documents);
    if (of !== epoch) places = order(dataset.documents, mixed(seed, of));
    epoch = of;
    return dataset.document(places[place % dataset.documents] as number);
  };
}

/** Documents as one batch. What is longer than `longest` is cut there. */
function packed(documents: readonly DatasetDocument[], longest: number) {
  const tokens: number[] = [];
  const targets: number[] = [];
  const starts: number[] = [];
  for (const { tokens: ids, learned } of documents) {
    const start = tokens.length;
    const length = Math.min(ids.length, longest);
    for (let i = 0; i < length; i++) {
      tokens.push(ids[i] as number);
      targets.push(i + 1 < length && learned[i + 1] ? (ids[i + 1] as number) : IGNORE_INDEX);
      starts.push(start);
    }
  }
  return { tokens, targets, documents: starts };
}

/** Refuses what is no dataset, here or in a worker. */
function expectDataset(data: unknown): void {
  const { document, documents } = (data ?? {}) as Partial<Dataset>;
  if (typeof document === "function" && typeof documents === "number") return;
  throw invalid(`distill: the dataset is ${show(data)}; give what a function of Dataset gave`);
}

/**
 * Trains a student on a dataset beside what a teacher says of it (Hinton et al., arXiv:1503.02531), and yields each step's
 * metrics. `loss` has both parts. Documents of the training split come in an order that follows from the trainer's seed,
 * another one in each epoch, from the place that the trainer's steps have come to.
 *
 * @param trained - the student: a trainer of a model or an adapter; `gradientAccumulation` micro-steps of `documentsPerStep` documents
 * make a step. A document is read up to the dataset's `sequenceLength`.
 * @param taught - the teacher, with the same vocabulary.
 * @throws {@link TinyloomError} `invalid-options`, `aborted`, and what `score` and `trainer.step` throw.
 */
export async function* distill(
  trained: Anywhere<Trainer>,
  taught: Anywhere<Model>,
  data: Anywhere<Dataset>,
  options: DistillOptions = {},
): AsyncGenerator<StepMetrics, void, undefined> {
  expectTrainer("distill", trained);
  expectModel("distill", "teacher", taught);
  expectDataset(data);
  const student = trained as Trainer;
  const [teacher, dataset] = [taught as Model, data as Dataset];
  const given = check<DistillOptions>("distill", options, DISTILL);
  const { temperature = 2, share = 0.5, direction = "forward", rest = "class", signal } = given;
  const own = student.model.config.vocab_size;
  const theirs = teacher.config.vocab_size;
  if (own !== theirs) {
    throw invalid(
      `distill: the student's vocab_size is ${own} and the teacher's ${theirs}; both need the same tokenizer`,
    );
  }
  const { gradientAccumulation, tokensPerStep, seed } = student.options;
  const longest = Math.min(dataset.sequenceLength, tokensPerStep);
  const { documentsPerStep = Math.floor(tokensPerStep / longest) } = given;
  expectCount("distill", student, { documentsPerStep }, 1);
  if (dataset.documents === 0) throw invalid("distill: the dataset has no document for training");
  const perStep = documentsPerStep * gradientAccumulation;
  const { ids = Math.min(64, own), steps = Math.ceil(dataset.documents / perStep) } = given;
  if (ids > own) {
    throw invalid(`distill: ids is ${ids}; it must be at most the models' vocab_size, ${own}`);
  }
  const draw = drawing(dataset, seed);
  const keep = keeper("distill", student, given.checkpoint, signal);
  for (let made = 0; made < steps; made++) {
    throwIfAborted(signal, "distill"); // not between micro-steps: half a step would be left
    const first = student.steps * perStep;
    const batches: ReturnType<typeof packed>[] = [];
    for (let part = 0; part < perStep; part += documentsPerStep) {
      const drawn: DatasetDocument[] = [];
      for (let i = 0; i < documentsPerStep; i++) drawn.push(await draw(first + part + i));
      batches.push(packed(drawn, longest));
    }
    const lengths = batches.map((batch) => batch.tokens.length);
    expectFits("distill", student, { documentsPerStep }, lengths);
    let metrics: StepMetrics | undefined;
    for (const batch of batches) {
      const { tokens, ...of } = batch;
      const { top } = await teacher.score(tokens, { ...of, top: ids, temperature });
      const soft = { ...top, direction, rest, share, temperature };
      metrics = await student.step({ ...batch, soft });
    }
    await keep(metrics as StepMetrics, true, made + 1 === steps);
    yield metrics as StepMetrics;
  }
}
