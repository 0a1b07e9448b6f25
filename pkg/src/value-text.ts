/** The text of a value in a message. */

/** Names the class of an object that lives in a worker, as a property of what stands for it in the page. */
export const REMOTE = Symbol.for("tinyloom.remote");

/** The text of a value in a message: short, and never throwing, whatever a proxy or a getter does. */
export function show(value: unknown): string {
  try {
    return text(value);
  } catch {
    return "a value that throws when it is read";
  }
}

function text(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 60));
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return "a function";
  if (typeof value !== "object" || value === null) return String(value);
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (Array.isArray(value)) return `an array of length ${value.length}`;
  if (typeof (value as { readonly then?: unknown }).then === "function")
    return "a promise (await it first)";
  const remote = (value as { [REMOTE]?: unknown })[REMOTE];
  if (typeof remote === "string") return `a ${remote} that lives in a worker (see tinyloom/worker)`;
  return `an object (${value.constructor?.name ?? "no prototype"})`;
}
