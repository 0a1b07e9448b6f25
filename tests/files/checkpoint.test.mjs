// A checkpoint is whole with its manifest: what fails afterwards does not remove it.
import assert from "node:assert/strict";
import { test } from "node:test";

const { Memory } = await import("../../pkg/dist/storage/memory.js");
const { CheckpointTarget, checkpointsOf } = await import("../../pkg/dist/storage/checkpoint.js");

/** Writes one as a save does. */
async function save(disk, { kept, ...turns }, keep = 1) {
  const target = new CheckpointTarget(disk, "run", { keep, kept }, turns);
  try {
    await target.expect(3);
    const out = await target.open("config.json", 2);
    await out.write(Uint8Array.of(123, 125));
    await target.close();
  } catch (error) {
    await target.abort(error);
    throw error;
  }
}

/** Turns that note what comes to pass. */
function turnsOf(noted) {
  return {
    take: async () => () => noted.push("the turn ends"),
    flush: async () => undefined,
    kept: (number) => noted.push(`kept ${number}`),
  };
}

const numbers = async (disk) => (await checkpointsOf(disk, "run")).map(({ number }) => number);

test("a whole checkpoint stays where older ones cannot be removed", async () => {
  const disk = new Memory();
  const noted = [];
  await save(disk, turnsOf(noted));
  const remove = disk.remove.bind(disk);
  disk.remove = async (path) => {
    if (path.includes("c00000001")) throw new Error("it is in use");
    return remove(path);
  };
  await assert.rejects(save(disk, turnsOf(noted)), /older checkpoints.*it is in use/);
  assert.deepEqual(await numbers(disk), [2, 1]);
  assert.deepEqual(noted, ["kept 1", "the turn ends", "kept 2", "the turn ends"]);
  disk.remove = remove;
  await save(disk, turnsOf(noted));
  assert.deepEqual(await numbers(disk), [3], "the next save removes both");
});

test("a checkpoint whose manifest cannot be written is removed", async () => {
  const disk = new Memory();
  await save(disk, turnsOf([]));
  const create = disk.create.bind(disk);
  disk.create = async (path, keep) => {
    if (path.includes("manifest.json")) throw new Error("no room");
    return create(path, keep);
  };
  await assert.rejects(save(disk, turnsOf([])), /manifest.*no room/);
  assert.deepEqual(await disk.names(["run"]), ["c00000001"]);
});
