import * as tinyloom from "tinyloom";
import { create } from "webgpu";
import { runBody } from "/work/main/tests/pkg/bodies/run.mjs";
const gpu = create([]);
for (const b of process.argv.slice(2)) for (const r of await runBody(tinyloom, gpu, b)) console.log(r.ok ? "ok  " : "FAIL", r.milliseconds, b, r.name, r.detail);
process.exit(0);
