// Runs test bodies in whichever host: a page, or Node with Dawn.

import { placed } from "./hosts.mjs";

/**
 * The runtimes of this host, by their limits. Bodies share them, since a software adapter takes seconds to compile for
 * another device what it has compiled for one. Cases that lose or destroy a runtime make one of their own.
 */
const runtimes = new Map();

async function runtimeOf(tinyloom, gpu, limits) {
  const made = runtimes.get(limits);
  if (made) return made;
  const runtime = await tinyloom.Runtime.create({ gpu, limits });
  runtimes.set(limits, runtime);
  runtime.lost.then(() => runtimes.delete(limits));
  return runtime;
}

/** The module of a body, AREA/NAME, from the root. */
export const pathOf = (body) => `tests/${body.replace("/", "/bodies/")}.mjs`;

/**
 * Runs the cases of one body module, which exports `cases`, functions by name, and its `place`, on a runtime that earlier ones may have used. What its `before` gives is made
 * before that, and handed to the cases as `early`.
 *
 * @param tinyloom - the package, with its entry `tinyloom/ops` as `ops` and its module `internal.js`
 *   with `stored` of `stored-runs.js`, which users cannot import, as `internal`.
 * @param gpu - the GPU object.
 * @param body - the module, as AREA/NAME.
 * @param host - runs the cases that the body's place gives to that host; all without it.
 * @param core - whether the core of these is enough.
 * @param keep - where the host has a disk: keeps a saved model for a check with PyTorch, called with
 *   (name, files, tokens, logits).
 * @returns `[{ name, ok, detail, milliseconds }]`.
 */
export async function runBody(tinyloom, gpu, body, { host, core, keep } = {}) {
  reveal(tinyloom);
  const path = `../../../${pathOf(body)}`; // in a variable: who imports this imports no body
  const { cases, before, place } = await import(path);
  const early = before?.(tinyloom);
  const limits = place.limits?.[host] ?? "adapter";
  const runtime = await runtimeOf(tinyloom, gpu, limits);
  const results = [];
  for (const name of placed(place, Object.keys(cases), host, core)) {
    const began = performance.now();
    const result = { name, ok: true, detail: "" };
    try {
      result.detail = (await cases[name]({ tinyloom, gpu, runtime, keep, early })) ?? "";
    } catch (error) {
      result.ok = false;
      result.detail = `${error?.code ?? ""} ${told(error)}`;
    }
    result.milliseconds = Math.round(performance.now() - began);
    results.push(result);
  }
  return results;
}

/** What an error says, and where: Firefox's stacks do not have the message. */
function told(error) {
  const stack = error?.stack ?? "";
  return stack.includes(String(error?.message)) ? stack : `${error}\n${stack}`;
}

/** Gives the classes what tests count and users cannot reach. */
export function reveal({ Runtime, Trainer, internal }) {
  Object.assign(Runtime.prototype, {
    _counters() {
      return internal.runtimes.of(this).counters();
    },
  });
  Object.assign(Trainer.prototype, {
    _activationBytes() {
      return internal.trainers.of(this).activationBytes();
    },
  });
}
