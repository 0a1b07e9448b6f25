// A model that is loaded packed is never whole in f32: neither on the GPU nor on the host.
// reads: tests/files/packed-memory.mjs
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { told } from "../child.mjs";
import { longTest } from "../gate/core.mjs";

/** Bytes on their way: a piece as it is read, as numbers, and as it is packed. */
const AHEAD = 48 << 20;
/** Bytes of a weight, norms and scales among them. */
const BYTES = { f16: 2.01, int8: 1.13, int4: 0.64 };

for (const [weights, most] of Object.entries(BYTES)) {
  longTest(
    `no model is whole in f32 while it is loaded in ${weights}`,
    {
      timeout: 300_000,
    },
    async (t) => {
      const host = fileURLToPath(new URL("packed-memory.mjs", import.meta.url));
      const { messages, printed, code } = await told(host, { args: [weights], signal: t.signal });
      assert.equal(code, 0, `the Node process ended with ${code}: ${printed}`);
      const { file, parameterCount, gpuBytes, grown } = messages.at(-1);
      t.diagnostic(`${parameterCount} weights, ${file} bytes of BF16, GPU ${grown.gpu}`);
      t.diagnostic(`host ${grown.host}, module ${grown.module}`);
      assert.ok(2 * parameterCount > AHEAD, `a checkpoint of ${file} bytes`);
      assert.equal(grown.gpu, gpuBytes, "the GPU never holds more than the model");
      assert.ok(
        gpuBytes < most * parameterCount,
        `${gpuBytes} bytes for ${parameterCount} weights`,
      );
      assert.ok(grown.host + grown.module < AHEAD, `${grown.host} + ${grown.module} on the host`);
    },
  );
}
