import * as tinyloom from "tinyloom";
import { type JobOptions, type JobProgress, type JobResult, runJob } from "./job.ts";

declare global {
  interface Window {
    /** The headless main job, called from outside the page. */
    tinyloomHeadless(
      options?: JobOptions,
      onProgress?: (progress: JobProgress) => void,
    ): Promise<JobResult>;
  }
}

window.tinyloomHeadless = (options, onProgress) =>
  runJob(tinyloom, navigator.gpu, options, onProgress);
