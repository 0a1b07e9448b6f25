// `npm run reliability`: faults at random moments, and what became of the runs.
import { commandLine, Failure, main } from "../../scripts/lib.mjs";
import { fuzz } from "./fuzz.mjs";
import { hostile } from "./hostile.mjs";
import { large } from "./large.mjs";
import { limits } from "./limits.mjs";
import { losses } from "./losses.mjs";
import { blocked, destroy, gpuProcess } from "./lost.mjs";
import { memory } from "./memory.mjs";
import { runParts } from "./parts.mjs";
import { snapshots } from "./snapshots.mjs";
import { soak } from "./soak.mjs";
import { storage } from "./storage.mjs";
import { stored } from "./stored.mjs";

const PARTS = {
  storage,
  stored,
  "gpu-process": gpuProcess,
  blocked,
  destroy,
  losses,
  snapshots,
  soak,
  limits,
  memory,
  large,
  hostile,
  fuzz,
};

const USAGE = `npm run reliability [-- PART … --seed N]   causes faults at random moments, and says what became of the runs

  storage      kills tabs that save (--count N)
  stored       damages every file of a stored run (--count N times)
  gpu-process  kills Chromium's GPU process (--count N)
  blocked      kills it twice within two minutes
  destroy      destroys devices (--count N)
  losses       does so in each host without recovery (--count N, --host firefox in one)
  snapshots    measures what snapshots cost (--seconds N of each model)
  soak         what is left after many steps (--steps N, --minutes N)
  limits       trains under caps on the device's limits (--count N, --host NAME)
  memory       fills the memory
  large        measures the memory that a save and a load of 1 GB take
  hostile      damaged files, and calls with nonsense (--count N)
  fuzz         fuzzes what reads files (--seconds N of each target)

Results go to bench/results, those of runs that are shorter than by default to target/reliability.
--built installs and builds nothing: for a machine without a network.`;

await main(async () => {
  const { values, positionals } = commandLine({
    allowPositionals: true,
    options: {
      help: { type: "boolean" },
      count: { type: "string" },
      seed: { type: "string" },
      steps: { type: "string" },
      minutes: { type: "string" },
      seconds: { type: "string" },
      host: { type: "string" },
      built: { type: "boolean" },
    },
  });
  if (values.help) return console.log(USAGE);
  const unknown = positionals.filter((name) => !(name in PARTS));
  if (unknown.length > 0) {
    throw new Failure(
      `no part ${unknown.join(", ")}; there is ${Object.keys(PARTS).join(", ")}`,
      2,
    );
  }
  if (!values.built) await prepare();
  const options = {
    ...(values.built && { built: true }),
    ...(values.host && { host: values.host }),
    ...Object.fromEntries(
      ["count", "seed", "steps", "minutes", "seconds"]
        .filter((name) => values[name] !== undefined)
        .map((name) => [name, Number(values[name])]),
    ),
  };
  const chosen = Object.entries(PARTS).filter(
    ([name]) => positionals.length === 0 || positionals.includes(name),
  );
  const wrong = await runParts(chosen, options);
  if (wrong.length > 0) throw new Failure(`${wrong.join(", ")}: not every row is whole`);
});

/** Installs what is missing, and builds the package. */
async function prepare() {
  const { setup } = await import("../../scripts/setup.mjs");
  await setup({ browsers: ["chromium", "firefox", "node"] });
  const { build } = await import("../../scripts/build.mjs");
  await build();
}
