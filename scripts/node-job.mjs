// The headless job in Node with Dawn: a child of headless.mjs, which gives it Vulkan's environment.
import { create } from "webgpu";
import * as tinyloom from "../pkg/dist/index.js";
import { runJob } from "../www/dist-node/job.js";

process.once("message", async ({ options, text }) => {
  try {
    const blob = text && new Blob([text]);
    const onProgress = (progress) => process.send({ progress });
    const result = await runJob(tinyloom, create([]), { ...options, text: blob }, onProgress);
    process.send({ result });
  } catch (error) {
    process.send({
      failure: error?.code ? `${error.message} (${error.code})` : String(error?.stack),
    });
  }
});
