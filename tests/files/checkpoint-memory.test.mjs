// A save into a stored run, and a resume from it, hold pieces of the checkpoint and never the whole.
// reads: tests/files/checkpoint-memory.mjs
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { told } from "../child.mjs";
import { longTest } from "../gate/core.mjs";

/** Of a model whose checkpoint has about 270 MB. */
const HIDDEN = 832;
/** Bytes that go to the disk at a time, and that are on their way beside the module's own memory. */
const [PIECE, AHEAD] = [8 << 20, 64 << 20];

async function holdsPieces(t) {
  const host = fileURLToPath(new URL("checkpoint-memory.mjs", import.meta.url));
  const { messages, printed, code } = await told(host, {
    args: [String(HIDDEN)],
    signal: t.signal,
  });
  assert.equal(code, 0, `the Node process ended with ${code}: ${printed}`);
  const { checkpoint, ...parts } = messages.at(-1);
  assert.ok(checkpoint > 2 * AHEAD, `a checkpoint of ${checkpoint} bytes`);
  for (const [what, { piece, bytes, grown }] of Object.entries(parts)) {
    t.diagnostic(`${what}: ${bytes} bytes, at most ${piece} at a time, ${grown} more in memory`);
    assert.ok(bytes >= checkpoint, `${what} touched ${bytes} of ${checkpoint} bytes`);
    assert.ok(piece <= PIECE, `${what}: a piece of ${piece} bytes`);
    assert.ok(
      grown < AHEAD,
      `${what}: ${grown} bytes more in memory, of a checkpoint of ${checkpoint}`,
    );
  }
}
longTest(
  "no whole checkpoint is in memory while it is saved or loaded",
  { timeout: 300_000 },
  holdsPieces,
);
