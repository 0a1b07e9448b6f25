// node gpu/dec/y.mjs [ROUNDS]: whole decoding in headless Chromium, forms in turns in one page.
import { resolve } from "node:path";
import { serve } from "../../scripts/server.mjs";
import { launch } from "../../bench/browser.mjs";
const FORMS = {
  base: null, // the build before
  shared: [0, 0, 128, 512, 1, 256],
  draw: [0, 0, 128, 512, 1, 1024],
  packed4: [0, 4, 128, 512, 1, 1024],
  near8: [0, 0, 128, 512, 8, 1024],
  all: [0, 4, 128, 512, 8, 1024],
  "all/256": [0, 4, 256, 512, 8, 1024],
  "all rows1": [1, 4, 128, 512, 8, 1024],
};
const rounds = Number(process.argv[2] ?? 3);
const quick = process.argv.includes("quick");
const CASES = quick ? [["tiny", "f32", "base,shared,all"]] : [
  ["seed", "f32", "base,shared,draw,near8,all,all rows1"],
  ["seed", "int4", "base,shared,draw,packed4,near8,all,all/256"],
  ["seed", "f16", "base,shared,packed4,all"],
  ["seed", "int8", "base,shared,packed4,all"],
  ["smol", "f16", "base,shared,draw,packed4,all,all/256"],
];
const began = Date.now();
const routes = { "/blank.html": Buffer.from('<!doctype html><link rel="icon" href="data:,"><title>b</title>'), "/bench": resolve("bench"), "/scripts": resolve("scripts") };
routes["/base"] = resolve("gpu/dec/base"); routes["/pkg"] = resolve("gpu/dec/pkg");
const server = await serve(routes, { isolated: true });
const browser = await launch("chromium");
const page = await browser.newPage();
page.on("console", (m) => console.error("page:", m.text()));
await page.goto(`${server.url}/blank.html`);
const smol = (await import("../../scripts/random-checkpoint.mjs")).MODELS["SmolLM2-135M"];
await page.evaluate(async (forms, smol) => {
  window.w = await import("/bench/workloads.mjs");
  w.CONFIGS.smol = { tokens: 512, config: smol };
  window.tl = { base: await import("/base/index.js"), pkg: await import("/pkg/index.js") };
  window.rt = {}; window.of = {};
  for (const [name, form] of Object.entries(forms)) {
    if (form) globalThis.tinyloomDecoding = form;
    of[name] = tl[form ? "pkg" : "base"];
    rt[name] = await of[name].Runtime.create({ recover: false });
  }
  const adapter = await navigator.gpu.requestAdapter();
  console.log("adapter", adapter.info.vendor, adapter.info.architecture, adapter.info.description, "subgroups", adapter.features.has("subgroups"));
}, FORMS, smol);
for (const [config, weights, list] of CASES) {
  if (Date.now() - began > 215_000) { console.log(`LEFT OUT for want of time: ${config} ${weights}`); continue; }
  const forms = list.split(",");
  await page.evaluate(async (forms, config, weights) => {
    window.d = {};
    for (const n of forms) { d[n] = await w.createDecoding(of[n], rt[n], config, { weights }); await w.warm(() => d[n].draw(256)); }
  }, forms, config, weights);
  const all = Object.fromEntries(forms.map((n) => [n, []]));
  for (let r = 0; r < rounds; r++)
    for (const n of forms)
      all[n].push(...(await page.evaluate(async (n) => { const t = []; for (let i = 0; i < 3; i++) t.push(await d[n].perToken()); return t; }, n)));
  const texts = await page.evaluate(async (forms, config, weights) => {
    const out = {};
    for (const n of forms) {
      const ids = [];
      for await (const t of d[n].model.generate(w.batch(128, w.CONFIGS[config].config.vocab_size).tokens, { maxTokens: 256, temperature: 0, weights })) ids.push(t.token ?? t.id ?? t);
      out[n] = ids.join();
    }
    return out;
  }, forms, config, weights);
  for (const n of forms) {
    const t = all[n].map((x) => x * 1000).sort((a, b) => a - b);
    const m = t[t.length >> 1];
    console.log(`ROW ${config} ${weights} ${n}: ${(1e6 / m).toFixed(0)} tokens/s, ${m.toFixed(1)} us (${t[0].toFixed(1)} to ${t.at(-1).toFixed(1)}), greedy ${texts[n] === texts[forms[0]] ? "same text" : "ANOTHER TEXT"}`);
  }
  await page.evaluate(async () => { for (const x of Object.values(d)) await x.model.free(); });
}
console.log(`${((Date.now() - began) / 1000).toFixed(0)} s`);
await browser.close(); await server.close(); process.exit(0);
