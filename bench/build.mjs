// Builds what bench/run.mjs measures.
import { build } from "../scripts/build.mjs";
import { main } from "../scripts/lib.mjs";
import { setup } from "../scripts/setup.mjs";

await main(async () => {
  await setup();
  await build({ testing: true, job: true });
});
