// Real chat templates render what transformers renders of them, to the character, or both refuse.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TEMPLATES } from "./jinja-expressions.mjs";
import { CHATS, realTemplates, rendered, TOKENS } from "./templates.mjs";

const { template: read } = await import("../../pkg/dist/text/jinja/run.js");
const { toValue } = await import("../../pkg/dist/text/jinja/data.js");
const { TemplateFault, TemplateRefusal, textOf } = await import(
  "../../pkg/dist/text/jinja/values.js"
);

const NOW = new Date(2025, 2, 9, 14, 5, 6);

/** What is rendered here: a text, or an error. */
function here({ template, messages, values = {}, prompt = false }) {
  const all = { tools: null, documents: null, ...values, messages, add_generation_prompt: prompt };
  const given = new Map(Object.entries(all).map(([name, value]) => [name, toValue(value)]));
  try {
    return { text: textOf(read(template).render(given, () => NOW)) };
  } catch (error) {
    assert.ok(error instanceof TemplateFault, String(error.stack));
    return { error: error.message, told: error instanceof TemplateRefusal };
  }
}

/** What is refused here, and rendered in Python. */
const REFUSED_HERE = ["{{ 1e16|int }}", "{% block a %}x{% endblock %}"];

test("expressions and statements give what Python's jinja2 gives, or are refused", (t) => {
  const messages = [
    { role: "user", content: "hello there world" },
    { role: "assistant", content: "yes" },
  ];
  const jobs = TEMPLATES.map((template) => ({ template, messages }));
  const counts = { same: 0, refused: 0 };
  for (const [at, python] of rendered(jobs).entries()) {
    const job = jobs[at];
    const own = here(job);
    if (REFUSED_HERE.includes(job.template)) {
      assert.match(own.error, /which is (not known here|no whole number)/);
      continue;
    }
    assert.equal(
      own.text,
      python.text,
      `${job.template}: ${own.error ?? ""}; Python: ${python.error}`,
    );
    counts[own.error === undefined ? "same" : "refused"] += 1;
  }
  assert.ok(counts.same >= 300, "so many expressions have a value");
  t.diagnostic(`${counts.same} equal, ${counts.refused} refused by both`);
});

test("real templates give what transformers gives, to the character", (t) => {
  const templates = realTemplates();
  assert.ok(Object.keys(templates).length >= 43, "so many templates are there");
  const jobs = [];
  for (const [name, template] of Object.entries(templates)) {
    for (const [chat, { messages, values }] of Object.entries(CHATS)) {
      for (const prompt of [false, true]) {
        jobs.push({ name, chat, template, messages, values: { ...TOKENS, ...values }, prompt });
      }
    }
  }
  const counts = { same: 0, refused: 0 };
  const rendering = new Map();
  for (const [at, python] of rendered(jobs).entries()) {
    const job = jobs[at];
    const own = here(job);
    const what = `${job.name}, ${job.chat}, prompt ${job.prompt}: ${own.error ?? ""}; Python: ${python.error}`;
    assert.equal(own.text, python.text, what);
    counts[own.error === undefined ? "same" : "refused"] += 1;
    if (own.told) assert.equal(own.error, python.error, "the template's own words");
    if (own.error === undefined) rendering.set(job.name, (rendering.get(job.name) ?? 0) + 1);
  }
  for (const name of Object.keys(templates))
    assert.ok(rendering.get(name) >= 8, `${name} renders chats`);
  t.diagnostic(
    `${rendering.size} templates: ${counts.same} texts equal, ${counts.refused} chats refused by both`,
  );
});
