// The demo page's tasks: problems differ, answers are right, and the exam is of problems that training never sees.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { tasks } = await pageModule("src/tasks/index");
const { EXAM, HELD_OUT, problemText, readProblems } = await pageModule("src/tasks/task");
const { answered } = await pageModule("src/tasks/answers");
const { exam, guesses } = await pageModule("src/exam");

/** Answers by another way than the task's own. */
const answers = {
  reverse: (word) => word.split("").reduce((made, letter) => letter + made, ""),
  sort: (digits) => "0123456789".replace(/./g, (one) => one.repeat(digits.split(one).length - 1)),
  add: (sum) => String(sum.split("+").reduce((total, one) => total + Number.parseInt(one, 10), 0)),
  brackets(open) {
    // A right answer leaves nothing when pairs are taken away.
    let rest = open;
    for (let before = ""; before !== rest; ) {
      before = rest;
      rest = rest.replace(/\(\)|\[\]|\{\}/, "");
    }
    return [...rest]
      .reverse()
      .join("")
      .replace(/[([{]/g, (one) => ")]}"["([{".indexOf(one)]);
  },
};

for (const [name, task] of Object.entries(tasks)) {
  test(`${task.label}: problems differ, and their answers are right`, async () => {
    const text = await problemText(task, 1);
    assert.equal(await problemText(task, 1), text, "one seed gives one text");
    assert.notEqual(await problemText(task, 2), text);
    const problems = readProblems(task, text);
    assert.equal(problems.length, task.problems);
    assert.equal(
      new Set(problems.map(({ prompt }) => prompt)).size,
      task.problems,
      "no two are equal",
    );
    for (const { prompt, completion } of problems) {
      assert.ok(prompt.endsWith(task.mark) && prompt.length + completion.length < 32, prompt);
      const asked = prompt.slice(0, -1);
      if (name === "add") assert.match(asked, /^(0|[1-9]\d?)\+(0|[1-9]\d?)$/);
      assert.equal(completion, answers[name](asked), prompt);
    }
    const last = problems.slice(-task.shown.length).map(({ prompt }) => prompt.slice(0, -1));
    assert.deepEqual(last, task.shown, "those that are shown are kept from training");
    assert.ok(
      task.problems * HELD_OUT * 0.8 > EXAM,
      "the exam is a part of those kept from training",
    );
    assert.equal(task.solve("?!"), undefined);
  });
}

test("an answer is right to the last letter, or wrong", () => {
  const judged = answered(tasks.reverse, "abc>cba\nabc>cb\nabc>cbaa\nabc>");
  assert.deepEqual(
    judged.map(({ verdict, wanted }) => [verdict, wanted]),
    [
      ["right", "cba"],
      ["wrong", "cba"],
      ["wrong", "cba"],
      ["wrong", "cba"],
    ],
  );
  assert.equal(judged[0].text, "abc → cba");
});

/** A model whose likeliest next token is what `next` says of the tokens so far. */
const modelOf = (next) => ({
  config: { vocab_size: 256 },
  async logits(tokens) {
    const out = new Float32Array(tokens.length * 256).fill(-3);
    tokens.forEach((_, at) => {
      out[at * 256 + next([...tokens].slice(0, at + 1))] = -1;
    });
    return out;
  },
});

/** Writes a word backwards, and then a line break; of words with a `z` the last letter is wrong. */
function backwards(tokens) {
  const text = String.fromCharCode(...tokens);
  const [word, written = ""] = text.split(">");
  const right = `${answers.reverse(word)}\n`;
  if (word.includes("z") && written.length === word.length - 1) return 33;
  return right.charCodeAt(written.length) || 10;
}

test("the exam counts answers without a wrong letter, the end included", async () => {
  const problem = (word) => ({ prompt: `${word}>`, completion: answers.reverse(word) });
  const problems = ["abc", "zebra", "loom"].map(problem);
  assert.deepEqual(await exam(modelOf(backwards), problems), { right: 2, of: 3 });
  const endless = modelOf((tokens) => (backwards(tokens) === 10 ? 33 : backwards(tokens)));
  assert.deepEqual(await exam(endless, problems), { right: 0, of: 3 }, "answers that do not end");
});

test("guesses are counted over the end of the text", async () => {
  const tokens = Uint32Array.from({ length: 1000 }, (_, i) => i % 7);
  const next = modelOf((seen) => (seen.at(-1) + 1) % 7);
  assert.deepEqual(await guesses(next, tokens, 32), { right: 256, of: 256 });
  const never3 = modelOf((seen) => ((seen.at(-1) + 1) % 7 === 3 ? 0 : (seen.at(-1) + 1) % 7));
  const wanted = tokens.slice(-256).filter((one) => one !== 3).length;
  assert.deepEqual(await guesses(never3, tokens, 32), { right: wanted, of: 256 });
});

test("long work gives the page its turn, and loses nothing of what it yields", async () => {
  const { inTurns } = await pageModule("src/turns");
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 1);
  function* work() {
    for (let part = 0; part < 20; part++) {
      const end = performance.now() + 5;
      while (performance.now() < end);
      yield part;
    }
  }
  assert.deepEqual(
    await inTurns(work()),
    Array.from({ length: 20 }, (_, part) => part),
  );
  clearInterval(timer);
  assert.ok(turns >= 5, `${turns} turns in 100 ms of work`);
});
