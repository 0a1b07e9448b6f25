/** A run as a program: what a visitor would write to train the same model. */

import { type RunSettings, validationFraction } from "./settings.ts";
import { tasks } from "./tasks/index.ts";
import { HELD_OUT } from "./tasks/task.ts";
import type { Training } from "./training.ts";

/** What the program has to know of a run beside its settings. */
export interface Coded {
  readonly settings: RunSettings;
  readonly text: { readonly name: string };
  /** The character that ends a prompt, where it learns problems. */
  readonly mark: string | undefined;
  /** What a sample continues. */
  readonly prompt: string;
  /** Size of the vocabulary that is learned from the text; undefined where letters are the tokens. */
  readonly vocabulary: number | undefined;
}

/** A run as a program. */
export function programOf({ settings, text, task, exampleText, codec }: Training): string {
  const mark = task && tasks[task].mark;
  const prompt = mark ? exampleText.split(mark)[0]! + mark : exampleText;
  const vocabulary = codec.json === undefined ? undefined : codec.tokenizer.vocabSize;
  return codeOf({ settings, text, mark, prompt, vocabulary });
}

/** An object as a program has it: no quotes around names. */
const literal = (value: object): string =>
  JSON.stringify(value, undefined, 1)
    .replace(/"(\w+)":/g, "$1:")
    .replace(/\s+/g, " ");

/**
 * The program, in about ten lines. The text is the file `text.txt` beside it: an export of the run has it as its data.
 */
export function codeOf({ settings, text, mark, prompt, vocabulary }: Coded): string {
  const { config, seed, steps, tokensPerStep, learningRate, minLearningRate } = settings;
  const { sequenceLength } = settings;
  const trainer = {
    tokensPerStep,
    learningRate,
    ...(minLearningRate !== undefined && { minLearningRate }),
    totalSteps: steps,
    seed,
  };
  const tokenizer = vocabulary === undefined ? "ByteTokenizer" : "BpeTokenizer";
  const made =
    vocabulary === undefined
      ? "new ByteTokenizer()"
      : `await BpeTokenizer.train(text, { vocabSize: ${vocabulary} })`;
  return [
    `import { ${tokenizer}, Dataset, Model, Runtime, Trainer } from "tinyloom";`,
    "",
    `const text = await (await fetch("text.txt")).text(); // ${text.name}`,
    `const tokenizer = ${made};`,
    ...(mark === undefined ? ofText({ sequenceLength, seed }) : ofProblems(mark, seed)),
    "const runtime = await Runtime.create();",
    `const config = ${literal(config)};`,
    `const model = await Model.create(runtime, config, { seed: ${seed} });`,
    `const trainer = await Trainer.create(model, ${literal(trainer)});`,
    `for await (const { step, loss } of trainer.run(dataset, { steps: ${steps} })) console.log(step, loss);`,
    "const decoder = tokenizer.decoder();",
    `const options = { ${mark === undefined ? "maxTokens: 100" : "maxTokens: 10, temperature: 0, stopTokens: [10]"} };`,
    `for await (const { token } of model.generate(tokenizer.encode(${JSON.stringify(prompt)}), options)) console.log(decoder.push(token));`,
    "",
  ].join("\n");
}

const ofText = (options: { sequenceLength: number; seed: number }): string[] => [
  `const dataset = await Dataset.fromText(text, tokenizer, ${literal({ ...options, validationFraction })});`,
];

/** Each line is a problem with its answer after the mark, and a line break ends the answer. */
const ofProblems = (mark: string, seed: number): string[] => [
  `const problems = text.trim().split("\\n").map((line) => line.split(${JSON.stringify(mark)}));`,
  `const documents = problems.map(([asked, completion]) => ({ prompt: asked + ${JSON.stringify(mark)}, completion }));`,
  `const dataset = await Dataset.fromDocuments(documents, tokenizer, { endToken: 10, validationFraction: ${HELD_OUT}, seed: ${seed} });`,
];
