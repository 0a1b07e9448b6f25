// The grammar of the built-in stories: what it generates it parses, with the entropy it claims.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { generateStories, storyLines } = await pageModule("stories/generate");
const { logProbability, parseSentence } = await pageModule("stories/parse");
const { grammarEntropy } = await pageModule("stories/entropy");
const { scoreSample, sentencesOf } = await pageModule("stories/score");
const { storyPrompt } = await pageModule("stories/preset");

const BYTES = 300_000;
const text = generateStories(1, BYTES);
const stories = text.split("\n").slice(0, -1); // the last one is cut
const sentences = stories.flatMap((story) => story.match(/[^.]+\./g).map((one) => one.trim()));

test("the text has the length asked for, and one seed gives one text", () => {
  assert.equal(Buffer.byteLength(text), BYTES);
  assert.equal(generateStories(1, BYTES), text);
  assert.notEqual(generateStories(2, BYTES), text);
});

test("line by line, as the page reads it, the text and its sentences are the same", () => {
  const lines = [...storyLines(1, BYTES)];
  assert.equal(lines.join(""), text);
  assert.deepEqual(new Set(lines.flatMap(sentencesOf)), new Set(sentencesOf(text)));
});

test("every sentence parses, and what is no sentence does not", () => {
  for (const sentence of sentences) assert.ok(parseSentence(sentence), sentence);
  assert.ok(parseSentence(storyPrompt.trim()), "the prompt");
  const [words] = sentences.map((sentence) => sentence.slice(0, -1).split(" "));
  const wrong = ["", "fox", "one day", words.slice(1).join(" "), [...words].reverse().join(" ")];
  for (const other of [...wrong, [...words, "fox"].join(" ")]) {
    assert.ok(!parseSentence(other), `"${other}" parses`);
  }
});

test("sentences hardly ever repeat", (t) => {
  const share = 1 - new Set(sentences).size / sentences.length;
  t.diagnostic(`${(100 * share).toFixed(2)} % of ${sentences.length} sentences occurred before`);
  assert.ok(share < 0.02, `${share} of the sentences repeat`);
});

test("the exact entropy is the mean that samples have", (t) => {
  const { natsPerSentence, natsPerByte, bytesPerSentence } = grammarEntropy();
  const surprise = sentences.map((sentence) => -logProbability(sentence));
  const mean = surprise.reduce((sum, x) => sum + x, 0) / surprise.length;
  // A sentence's own surprise counts its kind as drawn; in a story the kinds come in order, and only
  // the number of middle sentences is drawn: 5 sentences a story, 3 of them middle ones.
  const kinds = -(2 / 5) * Math.log(1 / 5) - (3 / 5) * Math.log(3 / 5);
  const expected = mean - kinds + Math.log(3) / 5;
  const bytes = stories.join("\n").length / sentences.length;
  t.diagnostic(
    `${natsPerSentence.toFixed(3)} nats per sentence, ${natsPerByte.toFixed(4)} per byte`,
  );
  assert.ok(Math.abs(expected / natsPerSentence - 1) < 0.01, `${expected}, ${natsPerSentence}`);
  assert.ok(Math.abs(bytes / bytesPerSentence - 1) < 0.01, `${bytes}, ${bytesPerSentence}`);
  assert.ok(Math.abs(natsPerByte * bytesPerSentence - natsPerSentence) < 1e-9);
});

test("a sample is scored by the grammar and by the text", () => {
  const [seen] = sentences;
  const novel = generateStories(99, 2000)
    .match(/[^.\n]+\./g)
    .map((one) => one.trim());
  const fresh = novel.find((sentence) => !sentences.includes(sentence));
  const sample = `x cut. ${seen} ${fresh} fox fox made day. so tiny`;
  const { sentences: whole, grammatical, novel: unseen } = scoreSample(sample, text);
  assert.deepEqual([whole, grammatical, unseen], [3, 2, 1]);
  const empty = scoreSample("", text);
  assert.deepEqual([empty.sentences, empty.grammaticalShare], [0, 0]);
});
