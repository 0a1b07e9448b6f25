// In the page: lists and runs cases of the testing module, each on one or several devices.

let testing;
let lanes;

/**
 * Opens a device for each of the options.
 *
 * @param base - address of the test server.
 * @param devices - for each device the options of RawRuntime.create.
 * @param full - whether to add the products that the everyday cases sample.
 * @returns `{ capabilities, names }`: those of each device, and of every case.
 */
export async function open(base, devices, full) {
  testing = await import(`${base}/testing/tinyloom.js`);
  await testing.default({ module_or_path: `${base}/testing/tinyloom_bg.wasm` });
  lanes = [];
  for (const options of devices) lanes.push(await openLane(options));
  const capabilities = lanes.map(({ runtime }) => JSON.parse(runtime.capabilities()));
  return { capabilities, names: JSON.parse(testing.testing_cases(full)) };
}

/** What cases depend on: of each name a list of what each device says, `{ name, file, key, … }`. */
export async function listCases(names, seed) {
  const all = [];
  for (const name of names) {
    const listings = [];
    for (const { runtime } of lanes) {
      listings.push(JSON.parse(await testing.testing_list(runtime, name, seed)));
    }
    all.push(listings);
  }
  return all;
}

/**
 * Runs a case on every device with the same random data. A case that throws has failed. A kernel text
 * that a device before has run on the same operands is not run again: the adapter is the same, and so
 * is what it would leave.
 *
 * @param others - what to do with the kernels for other adapters: "run" them all, or run only the device's "own" and
 *   have the texts of the rest checked.
 * @param seed - of the case's random data.
 * @returns for each device `{ name, ok, detail, pipelines, …, lost? }`.
 */
export async function runCase(name, others, seed) {
  const results = new testing.TestingResults();
  const reports = [];
  for (const lane of lanes) {
    const report = await runOn(lane.runtime, name, seed, results, others);
    reports.push({ ...report, lost: lane.lost });
    results.nextDevice();
  }
  results.free();
  return reports;
}

async function openLane(options) {
  const lane = { runtime: await create(options), lost: undefined };
  lane.runtime.lost().then((info) => {
    lane.lost = info;
  });
  return lane;
}

async function create(options) {
  try {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    return await testing.RawRuntime.create(navigator.gpu, adapter, JSON.stringify(options));
  } catch (error) {
    throw new Error(
      `the lane's adapter is missing: ${error.message ?? error} (${error.code ?? "no code"})`,
    );
  }
}

async function runOn(runtime, name, seed, results, others) {
  try {
    return JSON.parse(await testing.testing_run(runtime, name, seed, results, others));
  } catch (error) {
    const detail = error?.code ? `${error.code}: ${error.message}` : String(error?.stack ?? error);
    return { name, ok: false, detail };
  }
}
