// In the page: runs every case of the testing module on one runtime.

/** Of the cases' names those of a part `[index, count]`: every count-th from the index-th, of 1. */
export function ofShard(names, [index, count]) {
  return names.filter((_, i) => i % count === index - 1);
}

/**
 * Runs the cases in order. A case that throws counts as failed; the others still run, unless the
 * device was lost.
 *
 * @param base - address of the test server.
 * @param options - of RawRuntime.create.
 * @param full - whether to add the products that the everyday cases sample.
 * @param shard - the part of the cases to run, as of {@link ofShard}.
 * @param wanted - what the names of the cases to run contain.
 * @returns `{ capabilities, cases: [{ name, ok, detail, pipelines }], lost? }`.
 */
export async function runCases(base, options, full, shard, wanted) {
  const module = await import(`${base}/testing/tinyloom.js`);
  await module.default({ module_or_path: `${base}/testing/tinyloom_bg.wasm` });
  const runtime = await create(module, options);
  const capabilities = JSON.parse(runtime.capabilities());
  let lost;
  runtime.lost().then((info) => {
    lost = info;
  });
  const every = JSON.parse(module.testing_cases(full));
  const names = ofShard(
    every.filter((name) => name.includes(wanted)),
    shard,
  );
  const cases = [];
  for (const [index, name] of names.entries()) {
    console.log(`lane-progress ${index + 1}/${names.length} ${name}`);
    cases.push(await runCase(module, runtime, name));
    if (lost) break;
  }
  return { capabilities, cases, lost };
}

async function create(module, options) {
  try {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    return await module.RawRuntime.create(navigator.gpu, adapter, JSON.stringify(options));
  } catch (error) {
    throw new Error(
      `the lane's adapter is missing: ${error.message ?? error} (${error.code ?? "no code"})`,
    );
  }
}

async function runCase(module, runtime, name) {
  try {
    return JSON.parse(await module.testing_run(runtime, name));
  } catch (error) {
    const detail = error?.code ? `${error.code}: ${error.message}` : String(error?.stack ?? error);
    return { name, ok: false, detail, pipelines: 0 };
  }
}
