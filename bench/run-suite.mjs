// From a suite's name to what measures it, the same in a page and in Node.

/** Suites of kernels, which use the testing module. */
export const KERNELS = ["attention", "matmul", "token", "prompt"];

/**
 * Measures a suite.
 *
 * @param load - gives, when called: `library` the package, `testing` the testing module, `job` the
 *   headless job.
 * @param report - told of each row.
 */
export async function runSuite(settings, gpu, load, report) {
  const { suite } = settings;
  if (KERNELS.includes(suite)) {
    const suites = await import("./suites.mjs");
    return suites[`${suite}Suite`](await load.testing(), gpu, settings, report);
  }
  if (suite === "cache") {
    const { cacheSuite } = await import("./cache.mjs");
    return cacheSuite(await load.library(), gpu, settings, report);
  }
  if (suite === "batch") {
    const { batchSuite } = await import("./batch.mjs");
    return batchSuite(await load.library(), gpu, settings, report);
  }
  if (suite === "precision") {
    const { precisionSuite } = await import("./precision.mjs");
    return precisionSuite(await load.library(), await load.job(), gpu, settings, report);
  }
  const { runAll } = await import("./workloads.mjs");
  return runAll(load.library, gpu, settings, report);
}
