/** The bytes of an estimate in words. */
import type { Estimate } from "tinyloom/worker";
import { bytes } from "./dom.ts";

/** What the kinds of bytes are called, where an estimate's own names do not say it. */
const KINDS: { readonly [kind: string]: string } = { state: "optimizer state" };

/** The bytes of each kind that there is, by what it is called. */
export function kindsOf({
  total: _,
  ...kinds
}: Estimate["bytes"]): [kind: string, count: number][] {
  const there = Object.entries(kinds).filter(([, count]) => count > 0);
  return there.map(([kind, count]) => [KINDS[kind] ?? kind, count]);
}

/**
 * Why something does not fit, with the arithmetic; undefined where it fits.
 *
 * @param most - bytes that the page may take.
 * @param besides - what else takes bytes, by what it is called.
 */
export function refusal(
  { bytes: parts }: Estimate,
  most: number,
  { what, advice }: { what: string; advice: string },
  besides: { readonly [kind: string]: number } = {},
): string | undefined {
  const others = Object.entries(besides).filter(([, count]) => count > 0);
  const total = others.reduce((sum, [, count]) => sum + count, parts.total);
  if (total <= most) return undefined;
  const sum = [...kindsOf(parts), ...others].map(([kind, count]) => `${kind} ${bytes(count)}`);
  return (
    `${what}: ${sum.join(" + ")} = ${bytes(total)}, and this page takes at most ${bytes(most)}. ` +
    advice
  );
}
