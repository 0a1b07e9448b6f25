// What becomes of the page's run, and what of a moment goes into a link, a table and a drawing: without a browser.
// reads: www tests/page/page-module.mjs
// needs no build
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { Session } = await pageModule("src/session");

/** What is due has been done. */
const turn = () => new Promise((done) => setTimeout(done));

/** A session in a state, with the states that it has told, and those in which it has ended a run. */
function at(state) {
  const [told, ended] = [[], []];
  const session = new Session(
    (one) => told.push(one),
    () => ended.push(session.state),
  );
  const ways = {
    loading: [],
    idle: ["settle"],
    training: ["train"],
    paused: ["pause"],
    stopped: ["stop"],
    error: ["fail"],
  };
  for (const way of ways[state]) session.go(way);
  return { session, told, ended };
}

test("each transition leads from the states that have it, and from no other", () => {
  const wanted = {
    load: ["loading", "idle", "paused", "stopped", "error"],
    settle: ["loading"],
    train: ["loading", "paused", "stopped"],
    pause: ["loading", "training"],
    end: ["training", "paused"],
    stop: ["loading", "training"],
    fail: ["loading", "idle", "training", "paused", "stopped", "error"],
  };
  const states = ["loading", "idle", "training", "paused", "stopped", "error"];
  for (const [name, from] of Object.entries(wanted)) {
    for (const state of states) {
      const { session, told } = at(state);
      const before = told.length;
      if (from.includes(state)) {
        session.go(name);
        assert.equal(told.length, before + 1, `${name} from ${state} is told once`);
      } else {
        assert.throws(() => session.go(name), /^Error: no “/, `${name} from ${state}`);
        assert.equal(session.state, state);
      }
    }
  }
});

test("what did not come to be leaves all as it was", () => {
  for (const state of ["idle", "paused", "stopped", "error"]) {
    const { session } = at(state);
    const run = {};
    session.take(run);
    session.go("load");
    session.go("load");
    assert.ok(session.busy);
    session.back();
    assert.equal(session.state, state);
    assert.equal(session.run, run);
  }
  const { session } = at("training");
  session.back();
  assert.equal(session.state, "training", "a training does not go back");
  const { session: fresh } = at("loading");
  fresh.back();
  assert.equal(fresh.state, "idle", "a page that has just opened has nothing before");
});

test("a training that is over trains no more while it is scored and kept", () => {
  const { session, told } = at("training");
  session.go("end");
  assert.deepEqual([session.state, session.ending], ["loading", true]);
  assert.equal(told.at(-1), "loading", "what would halt it is told so");
  session.go("stop");
  assert.equal(session.ending, false);
});

test("a run that the page begins is a guest until another one is taken", () => {
  const { session } = at("loading");
  const [opening, own] = [{}, {}];
  session.take(opening, { ends: () => "stopped", said: () => "" });
  assert.equal(session.guest.run, opening);
  assert.equal(session.guest.ends(), "stopped");
  assert.equal(session.take(own), opening, "the one before is handed back, to be freed");
  assert.equal(session.guest, undefined);
  assert.equal(session.leave(), own);
  assert.equal(session.run, undefined);
});

test("how a training is to end holds for that training alone", () => {
  const { session } = at("training");
  session.halt("paused");
  assert.equal(session.halting, "paused");
  session.go("pause");
  session.go("train");
  assert.equal(session.halting, undefined);
});

test("what is wanted is done once, as soon as nothing is made; what was wanted before is forgotten", async () => {
  const { session, ended } = at("loading");
  const done = [];
  session.want(() => done.push("first"));
  session.want(() => done.push("second"));
  assert.deepEqual([session.wants, done], [true, []]);
  session.go("settle");
  assert.deepEqual(done, [], "what has called this has something to say first");
  await turn();
  assert.deepEqual([session.wants, done], [false, ["second"]]);
  session.go("fail");
  await turn();
  session.want(() => done.push("third"));
  assert.deepEqual([session.wants, done], [false, ["second", "third"]]);
  assert.deepEqual(ended, []);
});

test("a run that trains or is paused ends for what is wanted", async () => {
  for (const state of ["training", "paused"]) {
    const { session, ended } = at(state);
    const done = [];
    session.want(() => done.push("work"));
    assert.deepEqual([ended, done], [[state], []]);
    session.go("end");
    session.go("stop");
    await turn();
    assert.deepEqual([ended, done], [[state], ["work"]]);
  }
});

test("what is wanted while a run is read is done after one that does not come, too", async () => {
  for (const state of ["idle", "paused", "stopped", "error"]) {
    const { session, ended } = at(state);
    const done = [];
    session.go("load");
    session.want(() => done.push("work"));
    session.back();
    await turn();
    if (state === "paused") {
      assert.deepEqual([ended, done], [["paused"], []], "the run of before ends for it");
      session.go("end");
      session.go("stop");
      await turn();
    }
    assert.deepEqual(done, ["work"], state);
  }
});

test("a run that has come stands still, or has ended", async () => {
  const states = [];
  for (const finished of [false, true]) {
    const { session } = at("loading");
    session.stand(finished);
    states.push(session.state);
  }
  assert.deepEqual(states, ["paused", "stopped"]);
  const { session, ended } = at("loading");
  const done = [];
  session.want(() => done.push("work"));
  session.stand();
  assert.equal(session.state, "stopped", "something else is wanted");
  await turn();
  assert.deepEqual([ended, done], [[], ["work"]]);
});

test("while a proof runs nothing begins, and what is wanted waits for its end", async () => {
  for (const state of ["idle", "paused", "stopped", "error"]) {
    const { session, told, ended } = at(state);
    const done = [];
    assert.ok(session.free);
    session.prove();
    assert.deepEqual([session.proving, session.free, session.busy], [true, false, false]);
    assert.equal(session.state, state);
    assert.throws(() => session.prove(), /^Error: no “prove”/);
    for (const begins of ["load", "train"]) {
      assert.throws(() => session.go(begins), /^Error: no “/, `${begins} from ${state}`);
    }
    session.want(() => done.push("work"));
    await turn();
    assert.deepEqual([ended, done], [[], []]);
    const { length } = told;
    session.proved();
    assert.deepEqual(told.slice(length), [state], "it is told that the proof is over");
    await turn();
    const waits = state === "paused";
    assert.deepEqual([ended, done], waits ? [["paused"], []] : [[], ["work"]]);
    assert.ok(session.free);
  }
  for (const state of ["loading", "training"]) {
    const { session } = at(state);
    assert.ok(!session.free);
    assert.throws(() => session.prove(), /^Error: no “prove”/);
  }
  const { session } = at("stopped");
  session.prove();
  session.go("fail");
  assert.ok(!session.free, "a GPU that is lost in a proof ends it a moment later");
  session.proved();
  assert.deepEqual([session.state, session.free], ["error", true]);
});

test("an address is read, or asks for nothing", async () => {
  const { readLink } = await pageModule("src/link");
  for (const nothing of ["", "#", "#workshop", "#step=3", "#lesson=x"]) {
    assert.equal(readLink(nothing), undefined, nothing);
  }
  const { values, step, cut } = readLink("#text-source=sort&seed=7&step=120&cut=4.5.x");
  assert.equal(values.get("text-source"), "sort");
  assert.deepEqual([step, cut], [120, [4, 5]]);
  assert.equal(readLink("#seed=7").step, undefined);
  assert.equal(readLink("#seed=7&step=-1").step, undefined);
  assert.equal(readLink("#lesson=4").lesson, 4);
});

test("a moment has a link, unless it needs what only this browser has", async (t) => {
  const { momentLink, readLink } = await pageModule("src/link");
  const { presets } = await pageModule("src/presets");
  globalThis.location = { href: "https://tinyloom.test/" };
  t.after(() => delete globalThis.location);
  const of = { source: "sort", settings: { ...presets.thimble, seed: 5 }, pretrained: false };
  const { values, step, cut } = readLink(new URL(momentLink({ of, step: 9, cut: [6, 1] })).hash);
  assert.deepEqual([values.get("size"), step, cut], ["thimble", 9, [1, 6]]);
  const without = (change) => momentLink({ of: { ...of, ...change }, step: 9, cut: [] });
  const fewer = { ...presets.mid, config: { ...presets.mid.config, vocab_size: 412 }, seed: 5 };
  const stories = new URL(without({ source: "stories", settings: fewer })).hash;
  assert.equal(readLink(stories).values.get("size"), "mid", "it learns the same tokens again");
  assert.equal(without({ source: "paste" }), undefined);
  assert.equal(without({ source: "file" }), undefined);
  assert.equal(without({ pretrained: true }), undefined, "a model of the visitor's own files");
});

test("the editor's models have heads of a width that there is, and are told from others", async () => {
  const { CHOICES, configOf, fittingHeads, isOwn, valuesOf } = await pageModule("src/own-model");
  for (const width of CHOICES.width) {
    const fitting = fittingHeads(width);
    assert.ok(fitting.length > 0, `width ${width}`);
    for (const heads of fitting) {
      const size = width / heads;
      assert.ok(size % 4 === 0 && size <= 256, `width ${width}, ${heads} heads`);
      const values = { layers: 3, width, heads, context: 128, vocabulary: 512 };
      assert.deepEqual(valuesOf(configOf(values)), values);
      assert.ok(isOwn(configOf(values)));
    }
  }
  const { presets } = await pageModule("src/presets");
  assert.ok(!isOwn(presets.mid.config), "a feed-forward block of another width");
});

test("a size with letters as tokens, or with fewer than it has room for, is still known", async () => {
  const { presets, sizeOf } = await pageModule("src/presets");
  const { config, learningRate } = presets.mid;
  assert.equal(config.vocab_size, 4096);
  const letters = { config: { ...config, vocab_size: 256 }, learningRate };
  assert.equal(sizeOf(letters), "mid");
  const of = (words) => sizeOf({ config: { ...config, vocab_size: words }, learningRate });
  assert.equal(of(412), "mid", "a text may have groups of letters for no more");
  for (const words of [8, 4100]) assert.equal(of(words), undefined);
  const { config: thimble } = presets.thimble;
  assert.equal(sizeOf({ config: { ...thimble, vocab_size: 260 }, learningRate }), undefined);
});

test("a table keeps quotes and line breaks, and no cell is a formula", async () => {
  const { csvOf } = await pageModule("src/share/csv");
  const table = csvOf([
    ["a", 'say "b"'],
    ["one\ntwo", "=1+1"],
    [-1.5, "x,y"],
  ]);
  assert.equal(table, 'a,"say ""b"""\r\n"one\ntwo",\'=1+1\r\n-1.5,"x,y"\r\n');
});

test("a drawing has the pen's colours, places and letters", async () => {
  const { SvgPen } = await pageModule("src/share/svg");
  const pen = new SvgPen();
  const kit = pen.kit;
  pen.strokeStyle = "#123456";
  pen.lineWidth = 2.345;
  pen.globalAlpha = 0.5;
  const path = kit.path();
  path.moveTo(1, 2);
  path.bezierCurveTo(3, 4, 5, 6, 7.04, 8);
  kit.stroke(path);
  pen.globalAlpha = 0;
  pen.fillRect(0, 0, 1, 1);
  pen.globalAlpha = 1;
  pen.textAlign = "center";
  pen.font = '600 17px "Some Mono"';
  pen.fillText("<&>", 10, 20);
  const file = pen.file(100, 50, "A & B");
  assert.match(file, /^<svg [^>]*viewBox="0 0 100 50"[^>]*><title>A &amp; B<\/title>/);
  assert.ok(file.includes('d="M1 2C3 4 5 6 7 8" fill="none" stroke="#123456" stroke-width="2.3"'));
  assert.ok(file.includes('stroke-opacity="0.5"'));
  assert.ok(!file.includes("<rect"), "what cannot be seen is left out");
  assert.match(
    file,
    /text-anchor="middle"[^>]*font:600 17px &quot;Some Mono&quot;[^>]*>&lt;&amp;&gt;</,
  );
});

test("a clip goes slowly through the first steps, and ends where it shall", async () => {
  const { stepAt } = await pageModule("src/share/clip");
  assert.equal(stepAt(340, 0), 0);
  assert.equal(stepAt(340, 1), 340);
  assert.equal(stepAt(340, 2), 340, "its end stands still");
  assert.ok(stepAt(340, 0.5) < 170);
});

test("what begins before the page has had its turn comes first", async () => {
  const { session, ended } = at("training");
  let done = 0;
  session.want(() => done++);
  assert.deepEqual(ended, ["training"]);
  session.go("stop");
  session.prove();
  await turn();
  assert.equal(done, 0, "a proof has begun meanwhile");
  session.proved();
  await turn();
  assert.equal(done, 1);
  session.want(() => done++);
  assert.equal(done, 2, "nothing is in its way");
});
