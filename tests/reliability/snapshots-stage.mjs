// What a page does to measure snapshots: it trains in turns, with them and without.

/** Opens a runtime with a trainer of its own. */
async function open({ Runtime, Model, Trainer }, recover, { config, tokens }) {
  const runtime = await Runtime.create({ recover });
  const model = await Model.create(runtime, config, { seed: 1 });
  return { runtime, trainer: await Trainer.create(model, { tokensPerStep: tokens }) };
}

/** Steps per second over `turn` milliseconds. */
async function plainTurn(train, turn) {
  let [steps, rate] = [0, 0];
  await train((time) => {
    steps += 1;
    rate = (1000 * steps) / time;
    return time > turn;
  });
  return rate;
}

/**
 * Steps per second from the end of one snapshot to the end of another, `turn` milliseconds later at least: a part
 * of the time between two would count one snapshot too many or too few. Undefined after `longest` milliseconds.
 */
async function eagerTurn(train, taken, { turn, longest }) {
  let [seen, first, from, steps] = [taken.length, 0, undefined, 0];
  let result;
  await train((time) => {
    steps += 1;
    const ended = taken.length > seen;
    seen = taken.length;
    const now = performance.now();
    if (ended && from === undefined) [from, first, steps] = [now, seen, 0];
    else if (ended && now - from >= turn) {
      const cost = taken.slice(first).reduce((sum, one) => sum + one.cost, 0);
      const length = now - from;
      result = { rate: (1000 * steps) / length, share: cost / length, snapshots: seen - first };
    }
    return result !== undefined || time > longest;
  });
  return result;
}

/**
 * Trains one model in turns.
 *
 * @param tinyloom - the package, with its `internal` module.
 * @param work - `{ config, tokens, ids }`: of the model, of a step, of the data.
 * @param times - `{ turn, turns, longest }`: milliseconds of a turn, turns, and milliseconds of a turn at most.
 */
export async function measure(tinyloom, work, times) {
  const taken = [];
  const onState = ({ state, cost, milliseconds, bytes }) => {
    if (state === "snapshot") taken.push({ cost, milliseconds, bytes });
  };
  // The largest is above the default.
  const eager = await open(tinyloom, { snapshotBytes: 2 ** 33, onState }, work);
  const plain = await open(tinyloom, false, work);
  const data = tinyloom.Dataset.fromTokens(Uint32Array.from(work.ids), { sequenceLength: 64 });
  const train =
    ({ trainer }) =>
    async (over) => {
      const began = performance.now();
      for await (const _ of trainer.run(data, { stepsAhead: 1 })) {
        if (over(performance.now() - began)) break;
      }
    };
  // What a snapshot costs is learnt from the first ones.
  const { recovery } = tinyloom.internal.runtimes.of(eager.runtime);
  const { pace } = recovery;
  recovery.pace = { least: 0, share: 1 };
  await train(eager)(() => taken.length >= 3);
  recovery.pace = pace;
  await plainTurn(train(plain), 1000);
  const rows = { with: [], without: [] };
  for (let at = 0; at < times.turns; at++) {
    rows.without.push(await plainTurn(train(plain), times.turn));
    rows.with.push(await eagerTurn(train(eager), taken, times));
  }
  rows.without.push(await plainTurn(train(plain), times.turn));
  for (const { runtime } of [eager, plain]) runtime.destroy();
  return { ...rows, last: taken.at(-1) };
}
