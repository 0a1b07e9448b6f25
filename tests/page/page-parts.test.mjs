// Parts of the page that need no browser: the pace by the clock, a mean that does not lag, files that are no text, and
// what is said without a network.
// reads: www tests/page/page-module.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

test("the pace is that of the clock, with what happens between the steps", async () => {
  const { Speed } = await pageModule("src/speed");
  const speed = new Speed();
  const step = { tokens: 100, milliseconds: 500 };
  // The first step compiles for nine seconds, which is no pace.
  assert.equal(speed.add({ ...step, milliseconds: 9000 }, 9000), undefined);
  // Steps take half a second, and as long passes between them.
  let now = 9000;
  const after = (milliseconds) => {
    now += milliseconds;
    return speed.add(step, now);
  };
  // Before the second one the first sample compiles, too.
  assert.equal(after(7000), undefined);
  let shown = after(1000);
  assert.equal(shown.toFixed(3), "100.000", "the third step tells of itself alone");
  for (let at = 0; at < 9; at++) shown = after(1000);
  assert.equal(shown.toFixed(3), "100.000");
  assert.equal(speed.seconds.toFixed(3), "1.000");
  // A test of three seconds once in a while lowers it for a while, and not by half.
  shown = after(4000);
  assert.ok(shown < 90 && shown > 50, `${shown}`);
  for (let at = 0; at < 100; at++) shown = after(1000);
  assert.ok(Math.abs(shown - 100) < 2, `${shown}`);
});

test("a file that is no text is refused, and a text in any language is not", async () => {
  const { readText } = await pageModule("src/text");
  const settings = { sequenceLength: 8, seed: 1 };
  const read = (name, ...parts) =>
    readText({ kind: "file", file: new File(parts, name) }, settings);
  const png = Uint8Array.from({ length: 5000 }, (_, at) => (at * 7919 + (at >> 3) * 104729) % 256);
  await assert.rejects(read("a.png", png), /“a\.png” is no text: \d+ % of its beginning/);
  await assert.rejects(read("b.zip", "PK", new Uint8Array(3000)), /is no text/);
  for (const text of [
    "Über Bäume läuft Öl.\r\n",
    "木の話。\n",
    "Рассказ.\t\n",
    "plain \u001b[1mtext\n",
  ]) {
    const { source, name } = await read("c.txt", text.repeat(60));
    assert.equal(source, "file");
    assert.match(name, /^c\.txt, [\d,]+ letters$/);
  }
  // Latin-1: a letter in fifteen has an accent, and is no UTF-8.
  const latin = Uint8Array.from({ length: 3000 }, (_, at) =>
    at % 15 === 0 ? 0xfc : 97 + (at % 26),
  );
  assert.equal((await read("d.txt", latin)).source, "file");
});

test("where a text is from is known again after a reload", async () => {
  const { keptText, readText } = await pageModule("src/text");
  const settings = { sequenceLength: 8, seed: 1 };
  const kept = ({ name, task, judge }, bytes) =>
    keptText({ name, task, stories: judge !== undefined }, bytes);
  const pasted = await readText({ kind: "paste", text: "letters ".repeat(20) }, settings);
  assert.equal((await kept(pasted, pasted.bytes)).source, "paste");
  const file = await readText(
    { kind: "file", file: new File(["words ".repeat(40)], "w.txt") },
    settings,
  );
  assert.equal((await kept(file, file.bytes)).source, "file");
  const sums = await readText({ kind: "add" }, settings);
  assert.equal((await kept(sums, sums.bytes)).source, "add");
  const plays = { name: "Shakespeare, an excerpt, 220,000 letters" };
  assert.equal((await kept(plays, new Blob())).source, "shakespeare");
});

test("without a network a missing part is no fault of the page", async () => {
  const { OFFLINE, unreachable, wordsFor } = await pageModule("src/words");
  const here = { userAgent: "", secure: true };
  assert.equal(wordsFor("module-unavailable", { ...here, online: false }), OFFLINE);
  assert.equal(wordsFor("internal", { ...here, online: false }), OFFLINE);
  assert.doesNotMatch(OFFLINE, /Reload/i);
  assert.notEqual(wordsFor("internal", { ...here, online: true }), OFFLINE);
  assert.notEqual(wordsFor("out-of-memory", { ...here, online: false }), OFFLINE);
  const cause = new TypeError("Failed to fetch");
  assert.throws(() => unreachable(cause), { message: OFFLINE, cause }, "where a server is gone");
});

test("a kept run is stored anew once something was noted, as a score at its end", async () => {
  const { RunSaver } = await pageModule("src/run-saver");
  let saves = 0;
  const run = {
    id: "a",
    options: { text: "a" },
    update: async ({ options }) => void Object.assign(run, { options }),
    addMetrics: async () => undefined,
    addSample: async () => undefined,
    checkpoints: async () => [{ step: 5, bytes: 10 }],
  };
  const trainer = { steps: 5, save: async () => void saves++ };
  const saver = await RunSaver.of({ outlives: async () => true }, trainer, run);
  await saver.save();
  await saver.save();
  assert.equal(saves, 1);
  await saver.sample({ step: 5, score: { right: 128, of: 128 } });
  await saver.save();
  assert.equal(saves, 2, "the score is in the files");
  const score = { right: 128, of: 128, step: 5 };
  assert.deepEqual(run.options, { text: "a", score }, "and in what the list of runs reads");
  await saver.sample({ step: 6, score: { right: 1, of: 128 } });
  await saver.save();
  assert.deepEqual(run.options.score, score, "a step that is not stored has no score in the list");
});

test("the curve's mean neither lags nor leaves what falls evenly", async () => {
  const { meanAt, REACH } = await pageModule("src/mean");
  const falling = Array.from({ length: 40 }, (_, at) => 5 - at / 10);
  for (const [at, loss] of falling.entries()) {
    assert.ok(Math.abs(meanAt(falling, at) - loss) < 1e-12, `step ${at}`);
  }
  const noisy = falling.map((loss, at) => loss + (at % 2 === 0 ? 0.3 : -0.3));
  for (let at = REACH; at < noisy.length - REACH; at++) {
    assert.ok(Math.abs(meanAt(noisy, at) - falling[at]) < 0.05, `step ${at}`);
  }
  assert.equal(meanAt([3], 0), 3);
});

test("whoever knows the letters' frequencies alone has the loss that is drawn", async () => {
  const { entropyOf, letterEntropy } = await pageModule("src/letters");
  assert.ok(Math.abs(letterEntropy(new TextEncoder().encode("abcd")) - Math.log(4)) < 1e-12);
  assert.equal(letterEntropy(new TextEncoder().encode("aaaa")), 0);
  assert.equal(await entropyOf(new Blob()), undefined);
  // Answers of three to six random letters, and their ends: an end once in 5.5 tokens.
  const { problemText, readProblems } = await pageModule("src/tasks/task");
  const { reverse } = await pageModule("src/tasks/reverse");
  const problems = readProblems(reverse, await problemText(reverse, 1));
  const answers = problems.map(({ completion }) => `${completion}\n`);
  const end = 1 / 5.5;
  const known = -end * Math.log(end) - (1 - end) * Math.log((1 - end) / 26);
  const counted = await entropyOf(new Blob(answers));
  assert.ok(Math.abs(counted - known) < 0.01, `${counted} and ${known}`);
});

test("words of the package that could be misread are others", async () => {
  const { fromOne, stageWords } = await pageModule("src/words");
  assert.equal(stageWords("upload"), "Copying to your GPU");
  assert.equal(stageWords("download"), "download");
  assert.equal(fromOne("layer 0 q, k, v"), "layer 1 q, k, v");
  assert.equal(fromOne("Layer 11 of player 2"), "Layer 12 of player 2");
});

test("the clipboard is said to have a text only where it has", async () => {
  const { copied } = await pageModule("src/dom");
  const kept = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  const withClipboard = async (clipboard) => {
    Object.defineProperty(globalThis, "navigator", { value: { clipboard }, configurable: true });
    return copied("text");
  };
  try {
    const refused = new DOMException("no", "NotAllowedError");
    assert.equal(await withClipboard({ writeText: () => Promise.reject(refused) }), false);
    assert.equal(await withClipboard(undefined), false, "pages without https have none");
    assert.equal(await withClipboard({ writeText: async () => undefined }), true);
  } finally {
    if (kept) Object.defineProperty(globalThis, "navigator", kept);
    else delete globalThis.navigator;
  }
});

test("problems are looked at whose letters differ", async () => {
  const { clearest } = await pageModule("src/tasks/answers");
  assert.equal(clearest(["loom>mool", "silk>klis", "planet>tenalp"]), "planet>tenalp");
  assert.equal(clearest(["99+99=198", "12+80=92"]), "12+80=92");
  assert.equal(clearest(["aa>aa", "bb>bb"]), "aa>aa", "where none does, the first one");
});

/** What has been freed, closed and deleted, and what makes it. */
function fakes() {
  const gone = [];
  const freed = (name, more = {}) => ({ ...more, free: async () => void gone.push(name) });
  const model = freed("model", { config: { vocab_size: 256 } });
  const called = [];
  const lab = {
    runtime: { capabilities: { software: false } },
    Model: {
      create: async () => {
        called.push("model");
        return model;
      },
      fromPretrained: async () => model,
    },
    Dataset: { fromText: async () => freed("data", { hash: "", tokens: 1 }) },
    Trainer: {
      prepare: async () => {
        called.push("kernels");
        throw new Error("the trainer's to report");
      },
      create: async (of) => ({ model: of }),
    },
  };
  const store = {
    create: async (name) => ({ name, close: async () => void gone.push(`close ${name}`) }),
    delete: async (name) => void gone.push(`delete ${name}`),
    outlives: async () => Promise.reject(new Error("late")),
  };
  return { gone, called, lab, store };
}

/** Begins a run of which something fails. */
async function failing({ lab, store }, why) {
  const { beginRun } = await pageModule("src/open");
  const { presets } = await pageModule("src/presets");
  const text = { name: "a text", source: "paste", bytes: new Blob(["a b ".repeat(99)]), judge: {} };
  const settings = { ...presets.thimble, seed: 1 };
  await assert.rejects(beginRun(lab, store, { name: "new", settings, text }), why);
}

test("a start that fails late leaves no run, no model and no data", async () => {
  const { gone, called, ...of } = fakes();
  await failing(of, /^Error: late$/);
  assert.deepEqual(gone, ["close new", "delete new", "model", "data", "data"]);
  assert.deepEqual(called, ["kernels", "model"], "a GPU compiles while the model is made");
});

test("a trainer that fails leaves no run, which was made meanwhile; a CPU compiles nothing ahead", async () => {
  const { gone, called, ...of } = fakes();
  of.lab.runtime.capabilities.software = true;
  of.lab.Trainer.create = () => Promise.reject(new Error("no memory"));
  await failing(of, /^Error: no memory$/);
  assert.deepEqual(gone, ["model", "data", "data", "close new", "delete new"]);
  assert.deepEqual(called, ["model"]);
});

/** A lab whose texts have groups of letters for so many tokens. */
function withTokens(words) {
  const { lab, store } = fakes();
  const made = [];
  const json = new Blob(["{}"]);
  const tokenizer = {
    vocabSize: words,
    save: async () => ({ "tokenizer.json": new Uint8Array() }),
  };
  Object.assign(lab, {
    BpeTokenizer: {
      train: async (_, { vocabSize }) => {
        made.push(`at most ${vocabSize}`);
        return { ...tokenizer, vocabSize: Math.min(words, vocabSize) };
      },
    },
    Tokenizer: { fromPretrained: async () => ({ encode: async () => new Uint32Array(), json }) },
    Model: {
      create: async (_, config) => {
        made.push(`model of ${config.vocab_size}`);
        return { config, free: async () => undefined };
      },
    },
  });
  store.create = async (_, { options, tokenizer }) => {
    made.push(`${typeof tokenizer}, kept as of ${options.settings.config.vocab_size}`);
    return { close: async () => undefined };
  };
  store.delete = async () => undefined;
  return { made, lab, store };
}

test("a size's tokens are learned from a text of one's own; the model has no more than there are", async () => {
  const { beginRun } = await pageModule("src/open");
  const { presets } = await pageModule("src/presets");
  const text = { name: "a text", source: "paste", bytes: new Blob(["a b ".repeat(99)]) };
  const begun = async (words, fewer) => {
    const { made, lab, store } = withTokens(words);
    const settings = { ...presets.mid, seed: 1 };
    const vocabulary = presets.mid.config.vocab_size;
    const why = fewer
      ? /^Error: late$/
      : /only enough groups of letters for 301 tokens, not for 4096/;
    await assert.rejects(
      beginRun(lab, store, { name: "new", settings, text, vocabulary, fewer }),
      why,
    );
    return made;
  };
  const of = (words) => [`model of ${words}`, `string, kept as of ${words}`];
  // A multiple of four is quicker, and the model has no token that the text has not.
  assert.deepEqual(await begun(301, true), ["at most 4096", "at most 300", ...of(300)]);
  assert.deepEqual(await begun(300, true), ["at most 4096", ...of(300)]);
  assert.deepEqual(await begun(259, true), ["at most 4096", ...of(259)], "256 are letters alone");
  assert.deepEqual(await begun(9000, true), ["at most 4096", ...of(4096)]);
  assert.deepEqual(await begun(301, false), ["at most 4096"], "one's own choice is kept to");
});

test("a run that cannot be made leaves no model and no data", async () => {
  const { gone, called: _, ...of } = fakes();
  of.store.create = () => Promise.reject(new Error("no room"));
  await failing(of, /^Error: no room$/);
  assert.deepEqual(gone, ["model", "data", "data"]);
});

test("an imported model that comes to nothing is freed, or was not loaded", async () => {
  const { importModel } = await pageModule("src/import");
  const { orFreed } = await pageModule("src/open");
  const { gone, lab } = fakes();
  const unread = { text: () => Promise.reject(new Error("unreadable")) };
  let loaded = false;
  const loads = { Model: { fromPretrained: async () => (loaded = true) } };
  const folder = { name: "a", files: { "tokenizer.json": unread } };
  await assert.rejects(importModel(loads, folder), /unreadable/);
  assert.equal(loaded, false);
  const { model } = await importModel(lab, { name: "b", files: {} });
  const fails = async () => Promise.reject(new Error("no text"));
  await assert.rejects(orFreed(model, undefined, fails), /no text/);
  assert.deepEqual(gone, ["model"]);
});
