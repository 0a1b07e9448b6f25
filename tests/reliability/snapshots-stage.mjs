// What a page does to measure snapshots: it trains one model in pairs of short turns, in one of which a snapshot is
// taken. What the two turns of a pair differ by is what the snapshot cost.

/** Steps of a turn, and milliseconds of it, at least. */
const [STEPS, TURN] = [4, 100];
/** Snapshots before the first pair: tinyloom learns from them what one costs. */
const FIRST = 3;
/** Pairs at least, however long they take. */
const FEWEST = 5;

/** Takes turns of one trainer. */
class Turns {
  #taken;
  #snapshots;
  #metrics;

  /** @param taken - snapshots told of, to which others are added meanwhile. */
  constructor(trainer, data, snapshots, taken) {
    this.#taken = taken;
    this.#snapshots = snapshots;
    this.#metrics = trainer.run(data, { stepsAhead: 1 });
  }

  /** Steps until there is enough; `{ steps, milliseconds }`. */
  async #train(enough) {
    const began = performance.now();
    for (let steps = 1; ; steps++) {
      await this.#metrics.next();
      const milliseconds = performance.now() - began;
      if (steps >= STEPS && milliseconds >= TURN && enough(steps)) return { steps, milliseconds };
    }
  }

  /** One in which a snapshot is taken: it ends two steps after that. Has the snapshot, and when the next would be due. */
  async eager() {
    const before = this.#taken.length;
    let [ended, due] = [undefined, undefined];
    const began = performance.now();
    this.#snapshots.due = 0;
    const turn = await this.#train((steps) => {
      if (ended === undefined && this.#taken.length > before) {
        ended = steps;
        due = this.#snapshots.due - began;
        this.#snapshots.due = Number.POSITIVE_INFINITY;
      }
      return ended !== undefined && steps >= ended + 2;
    });
    return { ...turn, ...this.#taken.at(-1), due };
  }

  /** One without, of so many steps. */
  plain(steps) {
    this.#snapshots.due = Number.POSITIVE_INFINITY;
    return this.#train((done) => done >= steps);
  }
}

/**
 * Trains one model in pairs of turns.
 *
 * @param tinyloom - the package, with its `internal` module.
 * @param work - `{ config, tokens, ids }`: of the model, of a step, of the data.
 * @param longest - milliseconds that the pairs may take.
 * @returns `{ pairs, bytes }`; of each pair what the snapshot `cost`, by its `own` account too, and in how many
 * milliseconds (`due`) tinyloom would begin the next.
 */
export async function measure({ Runtime, Model, Trainer, Dataset, internal }, work, longest) {
  const taken = [];
  const onState = ({ state, cost, milliseconds, bytes }) => {
    if (state === "snapshot") taken.push({ own: cost, reading: milliseconds, bytes });
  };
  // The largest is above the default.
  const runtime = await Runtime.create({ recover: { snapshotBytes: 2 ** 33, onState } });
  const model = await Model.create(runtime, work.config, { seed: 1 });
  const trainer = await Trainer.create(model, { tokensPerStep: work.tokens });
  const data = Dataset.fromTokens(Uint32Array.from(work.ids), { sequenceLength: 64 });
  const { snapshots } = internal.models.of(model).recovery;
  const turns = new Turns(trainer, data, snapshots, taken);
  await turns.plain(0);
  let { steps } = await turns.plain(0);
  for (let at = 0; at < FIRST; at++) ({ steps } = await turns.eager());
  const pairs = [];
  const began = performance.now();
  while (pairs.length < FEWEST || performance.now() - began < longest) {
    // In turns the first and the second: what grows or falls with time falls out.
    const first = pairs.length % 2 === 1 ? await turns.plain(steps) : undefined;
    const { milliseconds, own, reading, due, ...eager } = await turns.eager();
    const plain = first ?? (await turns.plain(eager.steps));
    const undisturbed = (eager.steps * plain.milliseconds) / plain.steps;
    pairs.push({
      steps: eager.steps,
      undisturbed,
      cost: milliseconds - undisturbed,
      own,
      reading,
      due,
    });
    ({ steps } = eager);
  }
  runtime.destroy();
  return { pairs, bytes: taken.at(-1).bytes };
}
