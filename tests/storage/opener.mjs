// Opens runs of a folder in a thread or a process of its own, as its test tells it to.
import { once } from "node:events";
import { parentPort, Worker, workerData } from "node:worker_threads";
import { Runs } from "tinyloom/storage";

const folder = workerData ?? process.argv[2];
const tell = (message) => (parentPort ? parentPort.postMessage(message) : process.send(message));

/** Does nothing else until `flag` is set: no connection is accepted meanwhile. */
function busy(flag) {
  tell("busy");
  Atomics.wait(flag, 0, 0);
  return "free";
}

const work = {
  /** Opens the run "one", of the folder by another name where one is given. */
  open: async (where = folder) =>
    (await Runs.open("app", { folder: where })).open("one").then(
      () => "opened",
      ({ code, message }) => `${code}: ${message}`,
    ),
  /** As `open`, in another thread of this process. */
  async openInThread() {
    const worker = new Worker(new URL(import.meta.url), { workerData: folder });
    await once(worker, "message");
    worker.postMessage(["open"]);
    const [told] = await once(worker, "message");
    await worker.terminate();
    return told;
  },
  /** Which of these locks this thread now has. */
  async take(places) {
    const { takeLock } = await import("../../pkg/dist/storage/lock.js");
    const fs = await import("node:fs/promises");
    const taken = await Promise.all(places.map((place) => takeLock(fs, place)));
    return taken.map(Boolean);
  },
  busy,
};

(parentPort ?? process).on("message", async ([name, argument]) => {
  tell(await work[name](argument));
});
tell("ready");
