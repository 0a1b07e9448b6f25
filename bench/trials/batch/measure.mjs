// bash gpu/tools/stage.sh >/dev/null; source gpu/tools/env.sh; node gpu/batch/measure.mjs [SECONDS] [--tiny]
// One call: products of few rows by every form, a pass by parts, prompts, whole generateBatch; new (gpu/batch/pkg) beside
// old (gpu/batch/old: the build before, if there). Each child a process of its own. Budget 225 s by default.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
const here = dirname(fileURLToPath(import.meta.url));
const tiny = process.argv.includes("--tiny");
const seconds = Number(process.argv[2]) || 225;
const began = Date.now();
const left = () => seconds * 1000 - (Date.now() - began);
const base = [resolve(here, "old/dist"), resolve(here, "old")].find((at) => existsSync(resolve(at, "index.js")));
const own = [resolve(here, "pkg/dist"), resolve(here, "pkg")].find((at) => existsSync(resolve(at, "index.js")));
const child = (what, args, env = {}, most = 60) => {
  if (left() < 5000) return console.log(`LEFT OUT ${what} ${args.join(" ")}: no time`);
  const at = Date.now();
  const run = spawnSync(process.execPath, [resolve(here, `${what}.mjs`), ...args.map(String)], { encoding: "utf8", env: { ...process.env, ...env, ...(tiny ? { TINY: "1" } : {}) }, timeout: Math.min(most * 1000, left()), maxBuffer: 1 << 26 });
  process.stdout.write(run.stdout ?? "");
  if (run.status !== 0) console.log(`FAILED ${what} ${args.join(" ")}: status ${run.status} ${run.signal ?? ""} ${(run.stderr ?? "").slice(-600)}`);
  console.log(`-- ${what} ${args.map((a) => String(a).replace(here, ".")).join(" ")}: ${((Date.now() - at) / 1000).toFixed(1)} s`);
};
console.log(`packages: new ${own}, old ${base}`);
// 1. Whole batches, new and old, in turns.
for (const [name, pkg] of [["new", own], ["old", base]]) if (pkg) child("whole", [pkg, name, tiny ? "1,4" : "1,4,16,32", tiny ? "" : "16"], {}, 45);
// 2. A pass by parts.
for (const [name, pkg] of [["new", own], ["old", base]]) if (pkg) child("parts", [pkg, name, tiny ? 4 : 16], {}, 25);
// 3. Products by form: f32 of 16 rows first.
for (const product of ["gate_up", "down", "qkv", "out", "head"]) child("products", [product], {}, 40);
// 4. Whole batches with other forms in place of the picked ones.
if (own) for (const form of tiny ? [] : ["64/32 x4 u1", "64/64 x4 u4", "64/64 x2 u4", "64/32 x4 u4", "256/32 x4 u4", "64/32 x2 u4"]) child("whole", [own, `form ${form}`, "16", ""], { FORM: form }, 25);
