// A Node process with Dawn that runs the test bodies named on its command line.
import * as tinyloom from "tinyloom";
import { create } from "webgpu";
import { runBody } from "./bodies/run.mjs";

const gpu = create([]);
for (const body of process.argv.slice(2)) {
  const results = await runBody(tinyloom, gpu, body);
  await new Promise((sent) => process.send({ body, results }, sent));
}
process.exit(0); // Dawn's threads would keep the process alive
