// What a page measures of one row. A library's adapter has `load(row)`, which gives
//   about: its version and backend; generate(ids, count, onToken): draws the likeliest tokens and calls onToken after each;
//   greedy(ids, count): `tokens` and, of each, `gaps`: its log-probability less the second likeliest one's.
import { median } from "../workloads.mjs";
import { idsOf } from "./prompts.mjs";

const adapterOf = (peer) =>
  peer === "tinyloom" ? "/bench/serving/tinyloom.mjs" : `/bench/peers/dist/${peer}.js`;

/** Tokens: of the first prompt and that before decoding, of the long prompt, decoded, and compared. */
const CONTEXT = 128;
const PROMPT = 512;
const DECODED = 128;
const COMPARED = { context: 64, tokens: 32 };
const TIMES = { prompt: { first: 2, timed: 5 }, decode: 3 };

/** Seconds and milliseconds of each part of a row. The clock of loading begins before the library's import. */
export async function measure(row) {
  const { vocab_size: vocabulary } = await (
    await fetch(`/weights/${row.model}/config.json`)
  ).json();
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  const { load } = await import(adapterOf(row.peer));
  const subject = await load(row);
  const loadSeconds = seconds();
  let seed = 0;
  // Another prompt each time: libraries keep the keys and values of the last one.
  const next = (length) => idsOf(vocabulary, length, ++seed);
  await arrivals(subject, next(CONTEXT), 1);
  const firstSeconds = seconds();
  const greedy = await subject.greedy(idsOf(vocabulary, COMPARED.context, 0), COMPARED.tokens);
  const prompt = await promptTimes(subject, next);
  const decode = await decodeTimes(subject, next);
  return { ...row, about: subject.about, loadSeconds, firstSeconds, prompt, decode, greedy };
}

/** Milliseconds from the call until each token came, the last one when the call ended. */
export async function arrivals({ generate }, ids, count) {
  const times = [];
  const began = performance.now();
  await generate(ids, count, () => times.push(performance.now() - began));
  if (times.length !== count) throw new Error(`${times.length} tokens came instead of ${count}`);
  return times;
}

const spread = (values) => [Math.min(...values), Math.max(...values)];

async function promptTimes(subject, next) {
  const { first, timed } = TIMES.prompt;
  const times = [];
  for (let i = 0; i < first + timed; i++) {
    const [milliseconds] = await arrivals(subject, next(PROMPT), 1);
    if (i >= first) times.push(milliseconds);
  }
  return { tokens: PROMPT, milliseconds: median(times), spread: spread(times) };
}

/** Tokens per second after the first one, and with the prompt's time counted. */
async function decodeTimes(subject, next) {
  const [rates, withPrompt] = [[], []];
  for (let i = 0; i < TIMES.decode; i++) {
    const times = await arrivals(subject, next(CONTEXT), DECODED + 1);
    rates.push((1000 * DECODED) / (times.at(-1) - times[0]));
    withPrompt.push((1000 * (DECODED + 1)) / times.at(-1));
  }
  return {
    context: CONTEXT,
    tokens: DECODED,
    tokensPerSecond: median(rates),
    spread: spread(rates),
    tokensPerSecondWithPrompt: median(withPrompt),
  };
}

/** Seconds in which a page gets the bytes of a file and does nothing with them. */
export async function transfer(path) {
  const began = performance.now();
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  let bytes = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
  }
  return { path, bytes, seconds: (performance.now() - began) / 1000 };
}
