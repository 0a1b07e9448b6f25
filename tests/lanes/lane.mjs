// In the page: runs cases of the testing module, each on one or several devices.

/** Of the cases' names those of a part `[index, count]`: every count-th from the index-th, of 1. */
export function ofShard(names, [index, count]) {
  return names.filter((_, i) => i % count === index - 1);
}

/** What runs with every seed, on the first device, which has most features: it draws among its texts itself. */
const ALWAYS = /^texts: /;

/** What a software adapter's compiler takes longest for: whole models with the kernels of a large GPU, the widest heads. */
const SLOWEST = /kernels for hardware|split products|heads of 256|turned back/;

/** Of so many cases one is drawn: to run at all, or to run a kernel for another adapter. */
const ONE_OF = { slowest: 64, checked: 32, own: 32, others: 64 };

/**
 * What the seed draws for a case where the adapter's compiler takes most of the time.
 *
 * @param seed - of the case: the next case has the next.
 * @param devices - how many there are.
 * @param others - "check", or "own" where another lane runs as many other cases on the same driver.
 * @returns `{ on, others }`: the devices that run the case, and the one of them that runs a kernel for
 *   another adapter, by index.
 */
export function drawn(name, seed, devices, others) {
  const one = seed % devices;
  if (ALWAYS.test(name)) return { on: [0] };
  const turn = Math.floor(seed / devices);
  if (others !== "check") return { on: turn % ONE_OF.own === 0 ? [one] : [] };
  const slow = SLOWEST.test(name);
  return {
    on: turn % (slow ? ONE_OF.slowest : ONE_OF.checked) === 0 ? [one] : [],
    others: !slow && turn % ONE_OF.others === 0 ? one : undefined,
  };
}

/**
 * The part of the cases, `[index, count]`, that another lane of the same driver has to run when the first case has this
 * seed: none of it runs in a lane of one device with "own".
 */
export function leftToAnother(firstSeed) {
  const count = ONE_OF.own;
  // drawn() runs those whose seed is a multiple of the count; these are the next ones.
  const first = (count + 1 - (firstSeed % count)) % count;
  return [first + 1, count];
}

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

/**
 * Runs a case on every device with the same random data. A case that throws has failed. A kernel text
 * that a device before has run on the same operands is not run again: the adapter is the same, and so
 * is what it would leave.
 *
 * @param others - what to do with the kernels for other adapters: "run" them all; run one, and "check" the
 *   texts of the rest; or run only the device's "own". Except with "run", the seed draws which cases run where, as
 *   `drawn` says.
 * @param seed - of the case's random data.
 * @returns for each device `{ name, ok, detail, pipelines, …, lost? }`, or `{ name, skipped }`, which says who
 *   runs the case: "another device" or "other lanes".
 */
export async function runCase(name, others, seed) {
  const results = new testing.TestingResults();
  const draw = others === "run" ? undefined : drawn(name, seed, lanes.length, others);
  const reports = [];
  for (const [index, lane] of lanes.entries()) {
    if (draw && !draw.on.includes(index)) {
      reports.push({ name, skipped: draw.on.length > 0 ? "another device" : "other lanes" });
      continue;
    }
    const own = draw && draw.others !== index;
    const report = await runOn(lane.runtime, name, seed, results, own ? "own" : others);
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
