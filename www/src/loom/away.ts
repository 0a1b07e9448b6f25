/** Work on snapshots in a worker, which begins with the first of it. Where it does not load, the page works itself. */
import type { Asking, Weaving } from "./asking-worker.ts";

export class Away {
  #worker: Worker | undefined;
  #refused = false;

  /**
   * What comes of it; undefined where the worker does not load. One thing at a time.
   *
   * @typeParam Result - marks of questions, or a weave.
   */
  async do<Result>(asked: Asking | Weaving): Promise<Result | undefined> {
    if (this.#refused) return undefined;
    try {
      return await this.#send<Result>(asked);
    } catch {
      // A worker that did not load says so once, and would leave what is asked next unanswered.
      this.#worker?.terminate();
      this.#refused = true;
      return undefined;
    }
  }

  #send<Result>(asked: Asking | Weaving): Promise<Result> {
    return new Promise((done, fail) => {
      this.#worker ??= new Worker(new URL("./asking-worker.ts", import.meta.url), {
        type: "module",
      });
      const worker = this.#worker;
      worker.onmessage = ({ data }: MessageEvent<Result>) => done(data);
      worker.onerror = fail;
      worker.onmessageerror = fail;
      worker.postMessage(asked);
    });
  }
}
