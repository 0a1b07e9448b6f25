/** The benchmark, beside its runtime in a worker of its own: the page stays free, and no step waits for a message. */
import * as tinyloom from "tinyloom";
import { measureAll, type Said } from "./benchmark.ts";

const say = (said: Said): void => postMessage(said);

try {
  const runtime = await tinyloom.Runtime.create();
  const report = await measureAll(tinyloom, runtime, (rows, next) => say({ rows, next }));
  runtime.destroy();
  say({ report });
} catch (error) {
  say({ error: tinyloom.TinyloomError.from(error) });
}
