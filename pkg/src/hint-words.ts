/** Words for wrong calls; loaded with the parts of `lazy.ts`. */

import type { Hints } from "./hints.js";
import { object } from "./options.js";

/** What other libraries call an option, in small letters, by its name here. The first that a call takes counts. */
const OTHERS: { readonly [name: string]: string } = {
  learningRate: "lr eta maxlr peaklr",
  minLearningRate: "minlr lrmin",
  warmupSteps: "warmup numwarmupsteps warmupiters",
  totalSteps: "numtrainingsteps decaysteps",
  weightDecay: "wd decay l2",
  beta1: "betas adambeta1 b1",
  beta2: "betas adambeta2 b2",
  epsilon: "eps adamepsilon",
  schedule: "scheduler lrscheduler lrschedulertype",
  maxGradNorm: "clip gradclip gradientclip clipgradnorm clipnorm maxnorm gradclipnorm",
  gradientAccumulation:
    "gradientaccumulationsteps accumulationsteps gradaccum accumulategradbatches",
  tokensPerStep:
    "batch batchsize trainbatchsize perdevicetrainbatchsize tokensperbatch microbatchsize",
  recompute: "gradientcheckpointing activationcheckpointing checkpointing",
  precision: "mixedprecision amp fp16 bf16",
  optimizer: "optim opt",
  steps:
    "epochs epoch numepochs numtrainepochs nepochs maxsteps numsteps nsteps iterations iters maxiters",
  evaluateEvery: "evalsteps evalevery evalinterval evaluationsteps validateevery",
  evaluateOn: "evaldataset valdataset validationdata validationdataset evalset",
  checkpoint: "savesteps saveevery checkpoints checkpointing",
  sequenceLength:
    "blocksize seqlen seqlength contextlength contextsize maxseqlen maxseqlength maxlength",
  validationFraction: "valfraction valsplit validationsplit testsize testfraction holdout",
  maxTokens:
    "maxnewtokens maxlength maxlen numpredict npredict numtokens maxgenlen maxcompletiontokens",
  temperature: "temp dosample",
  repetitionPenalty: "repeatpenalty frequencypenalty presencepenalty",
  stop: "stopsequences stopstrings stopwords",
  stopTokens: "eostokenid eostoken eos stoptokenids endtoken",
  bias: "logitbias logitsbias",
  alternatives: "logprobs toplogprobs",
  weights: "dtype quantization quantize quantized quant loadin4bit loadin8bit torchdtype",
  rank: "r lorarank loradim",
  alpha: "loraalpha",
  dropout: "loradropout",
  targets: "targetmodules modules labels y",
  tokens: "inputids input inputs ids x",
  vocabSize: "vocabularysize vocab numwords nvocab",
  seed: "randomseed randomstate rng generator",
  onProgress: "progress progresscallback callback onprogresscallback",
  signal: "abortsignal abort cancel abortcontroller",
  adapter: "lora peft",
  gpu: "device adapter backend",
  powerPreference: "power",
  memoryBudget: "memory maxmemory memorylimit",
};

/** Which call takes an option that this one does not. */
const ELSEWHERE: { readonly [name: string]: string } = {
  learningRate: "Trainer.create",
  tokensPerStep: "Trainer.create",
  gradientAccumulation: "Trainer.create",
  maxGradNorm: "Trainer.create",
  optimizer: "Trainer.create",
  schedule: "Trainer.create",
  weightDecay: "Trainer.create",
  steps: "trainer.run",
  evaluateEvery: "trainer.run",
  evaluateOn: "trainer.run",
  checkpoint: "trainer.run",
  sequenceLength: "Dataset.fromText",
  validationFraction: "Dataset.fromText",
  maxTokens: "generate",
  temperature: "generate",
  weights: "Model.fromPretrained",
  rank: "Adapter.create",
  alpha: "Adapter.create",
  vocabSize: "BpeTokenizer.train",
};

const plain = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, "");

function option(name: string, known: readonly string[]): string {
  const meant = knownAs(plain(name.slice(0, 60)), known);
  if (meant === undefined) return "";
  return known.includes(meant)
    ? ` (did you mean ${meant}?)`
    : ` (${meant} is an option of ${ELSEWHERE[meant]})`;
}

/** The option that a name stands for: of this call if it can be, else of another. */
function knownAs(name: string, known: readonly string[]): string | undefined {
  const same = known.find((one) => plain(one) === name);
  if (same !== undefined) return same;
  const called = Object.keys(OTHERS).filter((one) => OTHERS[one]?.split(" ").includes(name));
  return (
    called.find((one) => known.includes(one)) ??
    nearest(name, known) ??
    [...called, ...Object.keys(ELSEWHERE).filter((one) => plain(one) === name)].find((one) =>
      Object.hasOwn(ELSEWHERE, one),
    )
  );
}

/** The name with the fewest slips in it: one in a short name, two in a longer one. */
function nearest(name: string, known: readonly string[]): string | undefined {
  const most = name.length < 5 ? 1 : 2;
  const slips = known.map((one) => [distance(name, plain(one)), one] as const);
  const [first] = slips.filter(([count]) => count <= most).sort(([a], [b]) => a - b);
  return first?.[1];
}

/** Letters to insert, delete or replace to make one text into the other (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) {
      const replaced = (row[j] as number) + Number(b[j] !== letter);
      next.push(Math.min(replaced, (row[j + 1] as number) + 1, (next[j] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}

const isMessage = (value: unknown): boolean =>
  object(value) === undefined && ("role" in (value as object) || "messages" in (value as object));

function ids(argument: string, given: unknown): string | undefined {
  const prompt = argument.startsWith("prompt");
  const [first]: readonly unknown[] = Array.isArray(given) ? given : [given];
  if (Array.isArray(given) && typeof first === "number") return undefined;
  if (isMessage(first)) return "chat(model, tokenizer, messages) answers a conversation";
  if (!prompt) {
    return typeof given === "string"
      ? "give token ids, such as those of tokenizer.encode(text)"
      : undefined;
  }
  return typeof first === "string"
    ? "give one text, with the option tokenizer; generateBatch takes several"
    : "give a text, with the option tokenizer, or a Uint32Array or an array of token ids";
}

export const words: Hints = { option, ids };
