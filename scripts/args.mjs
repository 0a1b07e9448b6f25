// The command line of `npm start -- …`.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { defaultSeed, openSettings, presets } from "../www/src/sizes.mjs";
import { complaint, Failure } from "./lib.mjs";

const DEFAULT_PORT = 8080;

const USAGE = `npm start                         builds and serves the demo page
npm start -- --headless [options] trains in a headless browser and prints a sample

  --browser chromium|firefox|node   where to run (default chromium; node: Dawn without a browser)
  --text FILE                       train on this file's bytes (default: generated short stories)
  --config PRESET|JSON              model size: a preset's name, or a config.json object
                                    (default: story, or story-small where a CPU computes)
  --sequence-length N               tokens in a document
  --tokens-per-step N               tokens in an optimizer step
  --learning-rate X                 peak learning rate
  --steps N                         optimizer steps
  --precision f32|mixed             in what products read the weights (default f32)
  --seed N                          seed of weights, data order and sampling (default ${defaultSeed})
  --prompt TEXT                     what the sample continues (default: a sentence of the stories,
                                    or a new line)
  --json                            one JSON object on the last line of stdout
  --port N                          port of the demo page (default ${DEFAULT_PORT}, or any free one;
                                    without --headless)

Presets, with the defaults of the four settings above that they set:
${settingsTable()}`;

/** A line for each preset, and one for a config.json object. */
function settingsTable() {
  const row = (name, { sequenceLength, tokensPerStep, learningRate, steps }, label) =>
    `  ${name.padEnd(12)}` +
    [sequenceLength, tokensPerStep, learningRate, steps].map((one) => `${one}`.padEnd(7)).join("") +
    label;
  const head = `  ${"".padEnd(12)}length tokens rate   steps`;
  const rows = Object.entries(presets).map(([name, preset]) => row(name, preset, preset.label));
  return [head, ...rows, row("(an object)", openSettings, "what its fields say")].join("\n");
}

/** Wrong usage: exit code 2. */
const usage = (message) => new Failure(`${message}\n\n${USAGE}`, 2);

const BROWSERS = ["chromium", "firefox", "node"];
const PRECISIONS = ["f32", "mixed"];

/** One of a few words. */
function oneOf(values, name, words) {
  const given = values[name];
  if (given !== undefined && !words.includes(given)) {
    throw usage(`--${name} is "${given}"; it is one of ${words.join(", ")}`);
  }
  return given;
}

const text = { type: "string" };
const flag = { type: "boolean", default: false };

function parse(argv) {
  try {
    return parseArgs({
      args: argv,
      allowPositionals: false,
      options: {
        headless: flag,
        browser: text,
        text,
        config: text,
        "sequence-length": text,
        "tokens-per-step": text,
        "learning-rate": text,
        steps: text,
        precision: text,
        seed: text,
        prompt: text,
        json: flag,
        port: text,
        help: flag,
      },
    }).values;
  } catch (error) {
    throw usage(complaint(error));
  }
}

/** A number within [low, high], whole unless `fractions`. */
function number(values, name, { low = 1, high = 0xffff_ffff, fractions = false } = {}) {
  const given = values[name];
  if (given === undefined) return undefined;
  const value = given.trim() === "" ? Number.NaN : Number(given);
  const kind = fractions ? "number" : "whole number";
  if (
    !(fractions ? Number.isFinite(value) : Number.isInteger(value)) ||
    value < low ||
    value > high
  ) {
    throw usage(`--${name} is "${given}"; give a ${kind} from ${low} to ${high}`);
  }
  return value;
}

function config(given) {
  if (given === undefined) return undefined;
  if (!/^\s*[[{"]/.test(given)) {
    if (Object.hasOwn(presets, given)) return given;
    const names = Object.keys(presets).join(", ");
    throw usage(`--config is "${given}"; give ${names}, or a config.json object`);
  }
  let value;
  try {
    value = JSON.parse(given);
  } catch (error) {
    throw usage(`--config is not JSON: ${error.message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw usage("--config is JSON but no object; give one such as '{\"hidden_size\": 128}'");
  }
  return value;
}

function readText(path) {
  if (path === undefined) return undefined;
  let bytes;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    throw usage(`--text ${path} cannot be read: ${error.message}`);
  }
  if (bytes.length === 0) throw usage(`--text ${path} is empty; give a file with some text`);
  return bytes;
}

/**
 * What to do: `{ help }`, `{ headless: false, port, portGiven }`, or
 * `{ headless: true, browser, json, text, job }` with the text's bytes and the job's options.
 */
export function parseCommand(argv) {
  const values = parse(argv);
  if (values.help) return { help: USAGE };
  if (!values.headless) {
    const stray = Object.keys(values).find(
      (name) => !["headless", "port", "json", "help"].includes(name),
    );
    if (stray || values.json) throw usage(`--${stray ?? "json"} needs --headless`);
    const port = number(values, "port", { low: 0, high: 65_535 });
    return { headless: false, port: port ?? DEFAULT_PORT, portGiven: port !== undefined };
  }
  if (values.port !== undefined) throw usage("--port cannot be combined with --headless");
  const browser = oneOf(values, "browser", BROWSERS) ?? "chromium";
  const job = {
    config: config(values.config),
    // As many positions as a model may have.
    sequenceLength: number(values, "sequence-length", { high: 1 << 24 }),
    tokensPerStep: number(values, "tokens-per-step"),
    learningRate: number(values, "learning-rate", { low: 1e-12, high: 1e6, fractions: true }),
    steps: number(values, "steps"),
    precision: oneOf(values, "precision", PRECISIONS),
    seed: number(values, "seed", { low: 0 }),
    prompt: values.prompt,
  };
  for (const name of Object.keys(job)) if (job[name] === undefined) delete job[name];
  return { headless: true, browser, json: values.json, text: readText(values.text), job };
}
