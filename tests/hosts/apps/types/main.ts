// A strict user's program; nothing runs it.
import {
  ByteTokenizer,
  Dataset,
  type ErrorCode,
  Model,
  type Runtime,
  TinyloomError,
  Trainer,
} from "tinyloom";
import * as inline from "tinyloom/inline";
import { attention, softmax } from "tinyloom/ops";

export async function use(): Promise<number> {
  const runtime: Runtime = await inline.Runtime.create({ wasm: "./tinyloom_bg.wasm" });
  const model = await Model.create(runtime, { hidden_size: 64, num_attention_heads: 2 });
  const dataset = await Dataset.fromText("text", new ByteTokenizer(), { sequenceLength: 8 });
  const trainer = await Trainer.create(model, {});
  let last = 0;
  for await (const { loss } of trainer.run(dataset, { steps: 1 })) last = loss;
  const query = runtime.tensor(null, [1, 1, 4, 4]);
  await softmax((await attention.forward(query, query, query)).output);
  const code = (error: unknown): ErrorCode =>
    error instanceof TinyloomError ? error.code : "internal";
  return last + code(0).length + (runtime.device ? 1 : 0);
}
