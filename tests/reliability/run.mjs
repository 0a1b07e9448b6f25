// `npm run reliability -- PART [--count N] [--seed N]`: faults at random moments, and what became of the runs.
import { parseArgs } from "node:util";
import { Failure, main } from "../../scripts/lib.mjs";
import { blocked, destroy, gpuProcess } from "./lost.mjs";
import { snapshots } from "./snapshots.mjs";
import { storage } from "./storage.mjs";

const PARTS = { storage, "gpu-process": gpuProcess, blocked, destroy, snapshots };

await main(async () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { count: { type: "string" }, seed: { type: "string" } },
  });
  const unknown = positionals.filter((name) => !(name in PARTS));
  if (unknown.length > 0) {
    throw new Failure(
      `no part ${unknown.join(", ")}; there is ${Object.keys(PARTS).join(", ")}`,
      2,
    );
  }
  const { setup } = await import("../../scripts/setup.mjs");
  await setup({ browsers: ["chromium"] });
  const { build } = await import("../../scripts/build.mjs");
  await build();
  const options = {
    ...(values.count && { count: Number(values.count) }),
    ...(values.seed && { seed: Number(values.seed) }),
  };
  for (const [name, work] of Object.entries(PARTS)) {
    if (positionals.length > 0 && !positionals.includes(name)) continue;
    if (!(await work(options))) throw new Failure(`${name}: not every row is whole`);
  }
});
