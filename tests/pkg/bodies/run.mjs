// Runs test bodies in whichever host: a page, or Node with Dawn.

/** The modules with test bodies; each exports `cases`, functions by name. */
export const BODIES = [
  "options",
  "bad-input",
  "nonsense",
  "checkpoint",
  "loading",
  "saving",
  "decoding",
  "training",
  "resources",
  "fixtures",
  "tensors",
  "ops",
  "ops-nonsense",
  "errors",
];

/**
 * Runs the cases of one body module on one runtime.
 *
 * @param tinyloom - the package, with its entry `tinyloom/ops` as `ops`.
 * @param gpu - the GPU object.
 * @param body - one of BODIES.
 * @param keep - where the host has a disk: keeps a saved model for a check with PyTorch, called with
 *   (name, files, tokens, logits).
 * @returns `[{ name, ok, detail, milliseconds }]`.
 */
export async function runBody(tinyloom, gpu, body, keep) {
  const { cases } = await import(`./${body}.mjs`);
  const runtime = await tinyloom.Runtime.create({ gpu });
  const results = [];
  for (const [name, work] of Object.entries(cases)) {
    const began = performance.now();
    const result = { name, ok: true, detail: "" };
    try {
      result.detail = (await work({ tinyloom, gpu, runtime, keep })) ?? "";
    } catch (error) {
      result.ok = false;
      result.detail = `${error?.code ?? ""} ${error?.stack ?? error}`;
    }
    result.milliseconds = Math.round(performance.now() - began);
    results.push(result);
  }
  runtime.destroy();
  return results;
}
