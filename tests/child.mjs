// Runs a script of the tests in a Node process of its own, with the environment that Dawn needs.
import { fork } from "node:child_process";
import { dawnEnv } from "../scripts/machine.mjs";

/**
 * Runs a script to its end. Its process is killed after `seconds`, when `signal` fires, and when this process ends,
 * so that none is left behind.
 *
 * @param script - path or `file:` URL.
 * @param options - `args` and `env` of the process; `signal`, such as a test's; `onMessage` hears each message.
 * @returns `messages`, in order; `printed`, on stdout and stderr; `code`, with which it ended, or the name of a signal,
 *   or why it was killed here.
 */
export async function told(
  script,
  { args = [], env = {}, seconds = 600, signal, onMessage = () => {} } = {},
) {
  const child = fork(script, args, { env: { ...process.env, ...dawnEnv(), ...env }, silent: true });
  let killed;
  const kill = (why) => {
    killed ??= why;
    child.kill("SIGKILL");
  };
  const atExit = () => kill("killed at the end of its test file");
  const aborted = () => kill("killed with its test");
  const timer = setTimeout(() => kill(`killed after ${seconds} s`), seconds * 1000);
  process.on("exit", atExit);
  signal?.addEventListener("abort", aborted);
  if (signal?.aborted) aborted();
  const messages = [];
  child.on("message", (message) => {
    messages.push(message);
    onMessage(message);
  });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => {
      printed += text;
    });
  }
  try {
    const code = await new Promise((done, fail) => {
      child.on("error", fail);
      child.on("close", (status, by) => done(killed ?? by ?? status));
    });
    return { messages, printed, code };
  } finally {
    clearTimeout(timer);
    process.off("exit", atExit);
    signal?.removeEventListener("abort", aborted);
  }
}
