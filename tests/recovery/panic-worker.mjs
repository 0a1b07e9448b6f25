// A worker in which the module can be made to panic.
import { serve } from "tinyloom/worker";
import { breakDevice } from "./panic-device.mjs";

// As in a browser, where an error that nobody catches does not end a worker.
process.on("uncaughtException", () => {});
serve({
  breakIn: (runtime) => breakDevice(runtime.device),
});
