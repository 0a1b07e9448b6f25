// Distillation: a student learns a made-up language better beside a teacher than from the texts alone.
import { random, timed } from "./kit.mjs";

const SYMBOLS = 16;
/** Tokens of a text. */
const LENGTH = 64;

const base = {
  model_type: "llama",
  vocab_size: SYMBOLS,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: LENGTH,
  tie_word_embeddings: true,
};
/** The student has a quarter of the teacher's weights. */
export const TEACHER = { ...base, hidden_size: 32, intermediate_size: 64 };
export const STUDENT = { ...base, hidden_size: 16, intermediate_size: 32 };

/** Text of a language in which the two symbols before say how likely the next one is. */
function language(seed) {
  const draw = random(seed);
  const table = Array.from({ length: SYMBOLS ** 2 }, () => {
    const shares = Array.from({ length: SYMBOLS }, () => draw() ** 10);
    const sum = shares.reduce((all, x) => all + x, 0);
    return shares.map((x) => x / sum);
  });
  return (length, seed) => {
    const next = random(seed);
    const text = [0, 0];
    while (text.length < length) {
      let rest = next();
      const shares = table[text.at(-2) * SYMBOLS + text.at(-1)];
      const id = shares.findIndex((share) => {
        rest -= share;
        return rest < 0;
      });
      text.push(id < 0 ? SYMBOLS - 1 : id);
    }
    return text;
  };
}

/**
 * @param options - `seed`; `steps` of the teacher and of each student; `rates`, of which each way takes its best; `report`.
 * @returns the validation losses: the teacher's, and for each way the best one, with its rate, and those of all rates.
 */
export async function chain({ Model, Trainer, Dataset, align }, runtime, options) {
  const {
    seed,
    teaching = 400,
    steps = 120,
    rates = [0.02, 0.04, 0.08],
    report = () => {},
  } = options;
  const write = language(seed);
  const whole = { sequenceLength: LENGTH, validationFraction: 0 };
  // What the teacher has read the student never sees; and the validation data nobody.
  const [read, few, others] = [
    [60_000, 1],
    [4_000, 2],
    [8_000, 3],
  ].map(([length, part]) => Dataset.fromTokens(write(length, seed * 10 + part), whole));
  const tokensPerStep = 256;
  const trained = async (config, learningRate, totalSteps, run) => {
    const model = await Model.create(runtime, config, { seed });
    const how = { optimizer: "muon", weightDecay: 0.01, tokensPerStep, seed };
    const trainer = await Trainer.create(model, { ...how, learningRate, totalSteps });
    for await (const _ of run(trainer, totalSteps));
    const { loss } = await trainer.evaluate(others, { all: true });
    trainer.free();
    return { model, loss };
  };
  const alone = (data) => (trainer, steps) => trainer.run(data, { steps });
  const [teacher, seconds] = await timed(() => trained(TEACHER, 0.02, teaching, alone(read)));
  report({ teacher: teacher.loss, seconds });
  const beside = (trainer, steps) =>
    align.distill(trainer, teacher.model, few, { temperature: 1, share: 0.9, steps });
  const best = {};
  for (const [way, run] of Object.entries({ alone: alone(few), distilled: beside })) {
    for (const rate of rates) {
      const { model, loss } = await trained(STUDENT, rate, steps, run);
      model.free();
      report({ way, rate, loss });
      const losses = { ...best[way]?.losses, [rate]: loss };
      best[way] = { ...(best[way]?.loss <= loss ? best[way] : { loss, rate }), losses };
    }
  }
  teacher.model.free();
  return { teacher: teacher.loss, ...best };
}
