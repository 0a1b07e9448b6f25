// Cases of storage.mjs: a model that is freed while it is saved.
import { equal } from "../../api/bodies/assert.mjs";
import { collect, config, dataset, trainerOptions } from "../../api/bodies/kit.mjs";

export const freed = {
  async "a model that is freed while its trainer is saved leaves a whole checkpoint"({
    open,
    tinyloom,
    runtime,
  }) {
    const runs = await open("freed");
    const data = await dataset(tinyloom);
    for (const [keep, left] of [
      [2, [2, 1]],
      [1, [2]],
    ]) {
      const name = `keeps ${keep}`;
      const run = await runs.create(name);
      const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
      const trainer = await tinyloom.Trainer.create(model, trainerOptions);
      await collect(trainer.run(data, { steps: 1, checkpoint: { run, keep } }));
      // As soon as the save has begun: before that it would be refused.
      let freeing;
      const onProgress = () => {
        freeing ??= model.free();
      };
      await trainer.save({ to: run, onProgress });
      await freeing;
      const numbers = (await run.checkpoints()).map(({ number }) => number);
      equal(numbers, left, name);
      const resumed = await tinyloom.Trainer.resume(runtime, run);
      equal([resumed.steps, run.problems], [1, []], `${name}: what resumes`);
      await resumed.model.free();
      await run.close();
      await runs.delete(name);
    }
  },
};
