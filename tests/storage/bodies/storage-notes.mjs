// Cases of storage.mjs: metrics that the caller notes, and runs in memory.
import { equal, refuses } from "../../api/bodies/assert.mjs";

export const notes = {
  async "metrics that the caller notes are read without opening the run"({ open }) {
    const runs = await open("notes");
    const run = await runs.create("one");
    await run.addMetrics({ step: 1, loss: 3 });
    await run.addMetrics({ step: 2, loss: Number.NaN });
    await run.addMetrics({ step: 3, loss: 1 });
    await run.addMetrics({ step: 2, loss: 2, validationLoss: 2.5 });
    const kept = [
      { step: 1, loss: 3 },
      { step: 2, loss: 2, validationLoss: 2.5 },
    ];
    equal(await run.metrics(), kept, "a step that came again begins the curve again from there");
    equal(await runs.metrics("one"), [], "what is not written yet");
    await refuses("invalid-options", ["addMetrics", "step"], () => run.addMetrics({ loss: 1 }));
    await run.close();
    const other = await open("notes");
    equal(await other.metrics("one"), kept, "what is written");
    const again = await runs.open("one");
    equal(await other.metrics("one"), kept, "while another has it open");
    await again.close();
    await refuses("freed", [], () => again.addMetrics({ step: 4 }));
    await refuses("invalid-options", ["two"], () => runs.metrics("two"));
    await runs.delete("one");
  },

  async "a log that cannot be read is an error of the storage"({ open, disk }) {
    const runs = await open("unread");
    const run = await runs.create("one");
    for (const kind of ["metrics", "samples"]) {
      await disk.folder("unread", `${run.id}/${kind}.jsonl`);
      const words = ['the run "one"', "could not be read"];
      await refuses("invalid-options", words, () => run[kind]());
    }
    await run.close();
    await runs.delete("one");
  },

  async "runs are kept in memory where that is asked for"({ tinyloom }) {
    const runs = await tinyloom.Runs.open("in-memory", { memory: true });
    const run = await runs.create("one", { data: "the data" });
    equal([runs.where, await runs.persisted], ["memory", false]);
    equal(await (await run.data()).text(), "the data");
    await run.close();
    const others = await tinyloom.Runs.open("in-memory", { memory: true });
    equal(await others.list(), [], "each has its own");
    await refuses("invalid-options", ["memory", "folder"], () =>
      tinyloom.Runs.open("in-memory", { memory: true, folder: "here" }),
    );
  },
};
