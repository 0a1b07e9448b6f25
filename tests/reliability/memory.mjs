// Memory that really ends: in Node the process may take no more address space, and on a GPU of its own nothing is left.
import { fork, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { dawnEnv, softwareOnly } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { adapterName, keep } from "./results.mjs";

/** On a software adapter: bytes at a time, and how many the process may take besides what it has. */
const [PIECE, ROOM] = [48 << 20, 700 << 20];
/** On a GPU of its own. */
const GPU_PIECE = 2 ** 31 - 2 ** 16;
const MOST = 2 ** 39;
/** Milliseconds that it may take. */
const LONGEST = 240_000;

/** Lets a process take so many more bytes of address space (Linux). */
function limit({ pid }) {
  const [, kilobytes] = /^VmSize:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  const { status, stderr } = spawnSync("prlimit", [
    "--pid",
    pid,
    `--as=${kilobytes * 1024 + ROOM}`,
  ]);
  if (status !== 0) throw new Error(`prlimit: ${stderr}`);
}

/** In Node with Dawn on a software adapter, whose memory is the process's. */
async function inNode() {
  const child = fork(join(import.meta.dirname, "memory-node.mjs"), {
    env: { ...process.env, ...dawnEnv() },
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), LONGEST);
  let found;
  child.on("message", (message) => {
    if (message !== "limit") found = message;
    else {
      limit(child);
      child.send("limited");
    }
  });
  child.send({ piece: PIECE, most: 4 * ROOM });
  const code = await new Promise((done) =>
    child.once("exit", (one, signal) => done(signal ?? one)),
  );
  clearTimeout(timer);
  return found ?? { ended: `the process ended with ${code}` };
}

/** In the page. */
async function fill(base, piece, most) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const internal = await import(`${base}/pkg/internal.js`);
  const { exhaust } = await import(`${base}/tests/reliability/memory-stage.mjs`);
  return exhaust({ tinyloom: { ...tinyloom, internal }, piece, most });
}

/** What is wrong, if anything. */
function judge({ ended, full, large, held, left, before, after }) {
  if (ended) return [ended];
  const wrong = [];
  if (full?.code !== "out-of-memory" || !/\d+ bytes/.test(full.message)) {
    wrong.push(`a tensor beyond the memory gives ${JSON.stringify(full)}`);
  }
  // Bytes for what, and what makes them fewer.
  if (large.code !== "out-of-memory" || !/weights [\d.]+ [MG]B/.test(large.message)) {
    wrong.push(`a model beyond the memory gives ${JSON.stringify(large)}`);
  }
  if (held[0] !== held[1]) wrong.push(`${held[1] - held[0]} bytes of a half-built model stay`);
  if (left !== 0) wrong.push(`${left} bytes are left`);
  if (JSON.stringify(after) !== JSON.stringify(before)) {
    wrong.push(`afterwards training gives ${JSON.stringify(after)}, and before ${before}`);
  }
  return wrong;
}

/** The result as JSON and a line. */
export async function memory() {
  const software = softwareOnly();
  const found = software
    ? await inNode()
    : await withPage(
        "chromium",
        () => {},
        (page, url) => page.evaluate(fill, url, GPU_PIECE, MOST),
      );
  const wrong = judge(found);
  const host = software ? "node" : "chromium";
  const how = software ? "a limit on the process" : "nothing left on the GPU";
  keep("memory", host, found.adapter ?? {}, { host, how, ...found, wrong });
  console.log(
    `memory: ${host}, ${adapterName(found.adapter ?? {})}: by ${how} memory ended after ${found.filled} bytes: ` +
      `${found.full?.message}; ${found.large?.message}`,
  );
  for (const line of wrong) console.log(`  ${line}`);
  return wrong.length === 0;
}
