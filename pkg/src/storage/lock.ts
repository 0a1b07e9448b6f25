/** Locks of runs in a folder, between processes and between the threads of one. */

import { type fileSystem, host, processId } from "../node.js";
import { address, answers, leftBy } from "./alive.js";

type Fs = Awaited<ReturnType<typeof fileSystem>>;

/** What a lock file says. */
type Judged = "absent" | "held" | "dead" | "unwritten";

/** Milliseconds between two attempts. */
const PAUSE = 20;
/** Milliseconds after which a file that is still being made was left by a crash. */
const CRASHED = 10_000;
/** Milliseconds for which attempts go on: long enough to outlast a crash. */
const PATIENCE = 12_000;

/** Locks that this thread has: one's own address answers too. */
const own = new Set<string>();

/**
 * Takes the lock in the file `place`. It has the number of this process and the address of this thread. A lock
 * whose thread has ended does not count.
 *
 * @returns what gives it back; undefined where another has it.
 */
export async function takeLock(fs: Fs, place: string): Promise<(() => Promise<void>) | undefined> {
  if (own.has(place)) return undefined;
  own.add(place); // at once, so that of two calls that overlap one has it
  let text: string | undefined;
  try {
    // It listens before anyone can read the address.
    const mine = [processId(), await address()].filter((part) => part !== undefined).join(" ");
    if (await take(fs, place, mine)) text = mine;
  } finally {
    if (text === undefined) own.delete(place);
  }
  return text === undefined ? undefined : () => release(fs, place, text);
}

/** Removes the lock file, unless somebody else has it by now. */
async function release(fs: Fs, place: string, text: string): Promise<void> {
  if ((await read(fs, place)) === text) await fs.rm(place, { force: true });
  own.delete(place);
}

/** Whether the lock file is now this thread's. */
async function take(fs: Fs, place: string, text: string): Promise<boolean> {
  for (const began = performance.now(); performance.now() - began < PATIENCE; ) {
    if (await make(fs, place, text)) return true;
    const judged = await judge(fs, place);
    if (judged === "held") return false;
    if (judged === "dead" && (await takeOver(fs, place, text))) return true;
    if (judged !== "absent") await new Promise((next) => setTimeout(next, PAUSE));
  }
  return false;
}

/**
 * Takes over a dead lock. A second file keeps others off meanwhile: of two that have found the lock dead, the slower
 * one would remove that of the faster one. Its name ends as that of a lock, so that it counts as no run.
 */
async function takeOver(fs: Fs, place: string, text: string): Promise<boolean> {
  const guard = `${place}.lock`;
  if (!(await make(fs, guard, text))) {
    if (await isOld(fs, guard)) await fs.rm(guard, { force: true });
    return false;
  }
  try {
    if ((await judge(fs, place)) !== "dead") return false;
    const [, left] = partsOf((await read(fs, place)) ?? "");
    await fs.rm(place, { force: true });
    const file = left && leftBy(left);
    if (file) await fs.rm(file, { force: true }).catch(() => {}); // another user's may not be removed
    return await make(fs, place, text);
  } finally {
    await fs.rm(guard, { force: true });
  }
}

/** Makes a file that is not there yet; false where it is. */
async function make(fs: Fs, place: string, text: string): Promise<boolean> {
  try {
    await fs.writeFile(place, text, { flag: "wx" });
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  }
}

async function judge(fs: Fs, place: string): Promise<Judged> {
  const text = await read(fs, place);
  if (text === undefined) return "absent";
  if (text === "") return (await isOld(fs, place)) ? "dead" : "unwritten";
  const [id, other] = partsOf(text);
  if (other && (await answers(other))) return "held";
  // Without an answer another process may still have it: some have a temporary folder that this one cannot see.
  return id && id !== processId() && isRunning(id) ? "held" : "dead";
}

/** The number of a lock's process, and the address of its thread where that could listen. */
function partsOf(text: string): [number, string | undefined] {
  const [, id, other] = /^(\d+)(?: (.+))?$/s.exec(text) ?? [];
  return [Number(id ?? 0), other];
}

/** Whether a file was made so long ago that who made it cannot be about to go on. */
async function isOld(fs: Fs, place: string): Promise<boolean> {
  const stat = await fs.stat(place).catch(absent);
  return stat !== undefined && Date.now() - Number(stat.mtimeMs) > CRASHED;
}

function isRunning(id: number): boolean {
  try {
    return host()?.kill(id, 0) === true;
  } catch (error) {
    return codeOf(error) === "EPERM"; // another user's
  }
}

const read = (fs: Fs, place: string) => fs.readFile(place, "utf8").catch(absent);

/** Undefined for what is not there; any other failure stays one. */
export function absent(error: unknown): undefined {
  if (codeOf(error) !== "ENOENT") throw error;
}

const codeOf = (error: unknown) => (error as { code?: unknown } | null)?.code;
