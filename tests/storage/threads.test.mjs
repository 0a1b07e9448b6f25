// Locks of runs in a folder: of the threads of one process, and of threads and processes that have ended.
// reads: scripts tests/storage/opener.mjs
import assert from "node:assert/strict";
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { Runs } from "tinyloom/storage";

const script = fileURLToPath(new URL("opener.mjs", import.meta.url));
// A short path: that of a socket may have about 100 bytes.
const root = mkdtempSync(join(tmpdir(), "tl-"));
const sockets = join(root, "t");
mkdirSync(sockets);
process.env.TMPDIR = sockets;
after(() => rmSync(root, { recursive: true }));

/** A thread that does not answer keeps a test from its end. */
const LIMIT = { timeout: 60_000 };
const pause = (milliseconds) => new Promise((next) => setTimeout(next, milliseconds));
const IN_USE = /^in-use: the run "one" is open .*thread/;

/** A folder with a run named "one", which is closed, and the path of its lock. */
async function withRun() {
  const folder = mkdtempSync(join(root, "f-"));
  const runs = await Runs.open("app", { folder });
  await (await runs.create("one")).close();
  const [{ id }] = await runs.list();
  return { folder, runs, lock: join(folder, `${id}.lock`) };
}

/** A thread or process that does what `ask` says, and gives its answer. */
async function openerOf(host) {
  const next = async () => (await once(host, "message"))[0];
  assert.equal(await next(), "ready");
  return async (...message) => {
    if (host instanceof Worker) host.postMessage(message);
    else host.send(message);
    return next();
  };
}

async function inThread(t, folder) {
  const worker = new Worker(script, { workerData: folder });
  t.after(() => worker.terminate());
  return { worker, ask: await openerOf(worker) };
}

async function inProcess(t, folder, env = {}) {
  const child = fork(script, [folder], { env: { ...process.env, ...env } });
  t.after(() => child.kill("SIGKILL"));
  return { child, ask: await openerOf(child) };
}

/** The number of a process that runs until the test ends. */
function living(t) {
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"]);
  t.after(() => child.kill("SIGKILL"));
  return child.pid;
}

/** What a lock says whose thread was of this process and has ended. */
const dead = () => `${process.pid} ${sockets}/tinyloom-${crypto.randomUUID().slice(0, 18)}.sock`;

/** What opening the run gives: its code and message, or "opened". */
const opening = (runs) =>
  runs.open("one").then(
    async (run) => {
      await run.close();
      return "opened";
    },
    ({ code, message }) => `${code}: ${message}`,
  );

test("of two threads the second is told, also while the first is busy", LIMIT, async (t) => {
  const { folder, runs } = await withRun();
  const [first, second] = [await inThread(t, folder), await inThread(t, folder)];
  assert.equal(await first.ask("open"), "opened");
  assert.match(await second.ask("open"), IN_USE);
  const flag = new Int32Array(new SharedArrayBuffer(4));
  assert.equal(await first.ask("busy", flag), "busy");
  assert.match(await second.ask("open"), IN_USE);
  assert.match(await opening(runs), IN_USE);
  const free = once(first.worker, "message");
  flag[0] = 1;
  Atomics.notify(flag, 0);
  assert.deepEqual(await free, ["free"]);
});

test("a lock ends with its thread, be it busy", LIMIT, async (t) => {
  const { folder, runs } = await withRun();
  const { worker, ask } = await inThread(t, folder);
  const before = readdirSync(sockets);
  assert.equal(await ask("open"), "opened");
  const made = readdirSync(sockets).filter((name) => !before.includes(name));
  assert.equal(made.length, 1);
  assert.match(await opening(runs), IN_USE);
  assert.equal(await ask("busy", new Int32Array(new SharedArrayBuffer(4))), "busy");
  await worker.terminate();
  assert.equal(await opening(runs), "opened");
  assert.ok(!existsSync(join(sockets, made[0])), "the socket of the thread is left");
});

test("a lock of a killed process is taken over with its socket", LIMIT, async (t) => {
  const { folder, runs, lock } = await withRun();
  const { child, ask } = await inProcess(t, folder);
  assert.equal(await ask("open"), "opened");
  const [id, socket] = readFileSync(lock, "utf8").split(" ");
  assert.equal(Number(id), child.pid);
  assert.match(await opening(runs), IN_USE);
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
  assert.ok(existsSync(socket), "nothing has removed the socket yet");
  assert.equal(await opening(runs), "opened");
  assert.ok(!existsSync(socket), "the socket of the process is left");
  assert.ok(!existsSync(lock));
});

test("a process that ends by itself leaves no socket", LIMIT, async (t) => {
  const { folder, lock } = await withRun();
  const { child, ask } = await inProcess(t, folder);
  assert.equal(await ask("open"), "opened");
  const [, socket] = readFileSync(lock, "utf8").split(" ");
  assert.ok(existsSync(socket));
  const ended = once(child, "exit");
  child.disconnect(); // it has nothing left to do
  assert.deepEqual(await ended, [0, null]);
  assert.ok(!existsSync(socket));
});

test(
  "a lock with the number of this process counts while its address answers",
  LIMIT,
  async (t) => {
    const { folder, runs, lock } = await withRun();
    // What a lock names is removed only where it is a thread's socket.
    const file = join(sockets, "file.sock");
    writeFileSync(file, "");
    for (const left of [dead(), `${process.pid} ${file}`]) {
      writeFileSync(lock, left);
      assert.equal(await opening(runs), "opened");
    }
    assert.ok(existsSync(file));
    const { ask } = await inProcess(t, folder);
    assert.equal(await ask("open"), "opened");
    // As a process of another container has it, whose number is the same.
    writeFileSync(lock, readFileSync(lock, "utf8").replace(/^\d+/, process.pid));
    assert.match(await opening(runs), IN_USE);
  },
);

test("of eight threads behind dead locks one has each", LIMIT, async (t) => {
  const { folder, runs, lock } = await withRun();
  const threads = await Promise.all(Array.from({ length: 8 }, () => inThread(t, folder)));
  const places = Array.from({ length: 25 }, (_, index) => join(folder, `${index}.lock`));
  for (const place of [...places, lock, join(folder, "names.lock")]) writeFileSync(place, dead());
  const taken = await Promise.all(threads.map(({ ask }) => ask("take", places)));
  for (const [index, place] of places.entries()) {
    assert.equal(taken.filter((one) => one[index]).length, 1, place);
  }
  const told = await Promise.all(threads.map(({ ask }) => ask("open")));
  assert.equal(told.filter((one) => one === "opened").length, 1, told.join("\n"));
  for (const one of told) if (one !== "opened") assert.match(one, IN_USE);
  assert.deepEqual((await runs.list()).length, 1, "a lock counts as a run");
});

test("who takes a dead lock over is waited for, unless it has crashed", LIMIT, async () => {
  const { runs, lock } = await withRun();
  const guard = `${lock}.lock`;
  writeFileSync(lock, dead());
  writeFileSync(guard, "");
  const waiting = opening(runs);
  assert.equal(await Promise.race([waiting, pause(300)]), undefined);
  assert.equal((await runs.list()).length, 1, "the guard counts as a run");
  rmSync(guard);
  assert.equal(await waiting, "opened");
  writeFileSync(lock, dead());
  writeFileSync(guard, "");
  const old = Date.now() / 1000 - 20;
  utimesSync(guard, old, old);
  assert.equal(await opening(runs), "opened");
  assert.ok(!existsSync(guard));
});

test(
  "a lock that is being written is waited for, unless its writer has crashed",
  LIMIT,
  async (t) => {
    const { runs, lock } = await withRun();
    writeFileSync(lock, "");
    const waiting = opening(runs);
    assert.equal(await Promise.race([waiting, pause(300)]), undefined);
    writeFileSync(lock, String(living(t)));
    assert.match(await waiting, IN_USE);
    writeFileSync(lock, "");
    const old = Date.now() / 1000 - 20;
    utimesSync(lock, old, old);
    assert.equal(await opening(runs), "opened");
  },
);

test("a run is closed without the lock that somebody else has by now", LIMIT, async (t) => {
  const { runs, lock } = await withRun();
  const run = await runs.open("one");
  writeFileSync(lock, String(living(t)));
  await run.close();
  assert.match(await opening(runs), IN_USE);
});

test("a folder is one folder however it is named", LIMIT, async () => {
  const { folder, runs } = await withRun();
  const link = `${folder}-link`;
  symlinkSync(folder, link);
  const run = await runs.open("one");
  const names = [
    relative(process.cwd(), folder),
    link,
    pathToFileURL(folder),
    `${folder}/../${folder.split("/").at(-1)}/`,
  ];
  for (const name of names) {
    const others = await Runs.open("app", { folder: name });
    assert.match(await opening(others), IN_USE, String(name));
  }
  await run.close();
  const others = await Runs.open("app", { folder: link });
  assert.equal(await opening(others), "opened");
});

test(
  "a process that cannot listen has its own locks, and others see that it runs",
  LIMIT,
  async (t) => {
    const { folder, runs, lock } = await withRun();
    const link = `${folder}-link`;
    symlinkSync(folder, link);
    const { child, ask } = await inProcess(t, folder, { TMPDIR: join(root, "absent") });
    assert.equal(await ask("open"), "opened");
    assert.equal(readFileSync(lock, "utf8"), String(child.pid));
    assert.match(await ask("open", link), IN_USE);
    assert.match(await opening(runs), IN_USE);
  },
);

test(
  "a thread in a long temporary folder, or one with a line break in its name, has a lock",
  LIMIT,
  async (t) => {
    for (const name of ["long".repeat(30), "a\nb"]) {
      const { folder, lock } = await withRun();
      const TMPDIR = join(root, name);
      mkdirSync(TMPDIR);
      const { child, ask } = await inProcess(t, folder, { TMPDIR });
      assert.equal(await ask("open"), "opened");
      const [id, socket] = readFileSync(lock, "utf8").split(/ (.*)/s);
      t.after(() => rmSync(socket, { force: true }));
      assert.deepEqual([Number(id), existsSync(socket)], [child.pid, true]);
      assert.match(await ask("openInThread"), IN_USE);
    }
  },
);
