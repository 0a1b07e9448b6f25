/** Which threads live, in Node, Deno and Bun: each listens on an address, at which others ask. */

import { host, network, system } from "../node.js";

/** Milliseconds after which a connection that nothing has decided counts as an answer. */
const SILENCE = 1000;
/** A socket's path takes at most 104 bytes on some systems. A longer one may be cut off without an error. */
const LONGEST = 100;
/** What a connection gives where too much is open or waits: nothing is known then. */
const BUSY = ["EAGAIN", "EBUSY", "EMFILE", "ENFILE"];
/** The path of such a socket: no other file may be removed by what a lock file says. */
const SOCKET = /[/]tinyloom-[\da-f-]{18}[.]sock$/;

let listening: Promise<string | undefined> | undefined;

/** The address of this thread; undefined where it may not listen. */
export function address(): Promise<string | undefined> {
  listening ??= listen().catch(() => undefined);
  return listening;
}

/**
 * Listens on an address that no other thread ever has. The system accepts connections there also while the thread is
 * busy. It refuses them as soon as the thread or its process has ended, by whatever way. So an answer means
 * that the thread lives, which the number of its process does not tell.
 */
async function listen(): Promise<string | undefined> {
  const [{ createServer }, { tmpdir }] = await Promise.all([network(), system()]);
  const mark = crypto.randomUUID().slice(0, 18);
  const windows = host()?.platform === "win32";
  const own = windows ? `\\\\.\\pipe\\tinyloom-${mark}` : `${tmpdir()}/tinyloom-${mark}.sock`;
  const path = new TextEncoder().encode(own).length > LONGEST ? `/tmp/tinyloom-${mark}.sock` : own;
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((done, fail) => {
    server.on("error", fail); // also later on, when a connection fails: it is no error of the program
    server.listen({ path, exclusive: true }, done); // exclusive: of node:cluster, the primary would listen
  });
  server.unref();
  host()?.once("exit", () => server.close()); // removes the socket's file
  return path;
}

/** Whether the thread with this address lives. */
export async function answers(path: string): Promise<boolean> {
  const { connect } = await network();
  return new Promise((done) => {
    const socket = connect(path);
    const told = (alive: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      done(alive);
    };
    const timer = setTimeout(told, SILENCE, true);
    socket.on("connect", () => told(true));
    socket.on("error", ({ code }: { code?: string }) => told(BUSY.includes(code ?? "")));
  });
}

/** The socket's file of a thread that was killed, which nothing else removes. */
export function leftBy(path: string): string | undefined {
  return SOCKET.test(path) ? path : undefined;
}
