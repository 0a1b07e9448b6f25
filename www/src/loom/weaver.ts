/**
 * Weaves snapshots: a small model at once, and a larger one in a worker, so that threads glide and letters are typed
 * meanwhile.
 */
import { Away } from "./away.ts";
import type { Snapshot } from "./track.ts";
import { type Cloth, type Weave, weaving } from "./weave.ts";
import { sizeOf } from "./weights.ts";

/** Products of numbers that the page computes itself: a few milliseconds of them. */
const MOST = 2_500_000;
/** Milliseconds of work after which a picture may be drawn. */
const TURN = 8;

export class Weaver {
  readonly #away = new Away();

  /** One weave at a time. Nothing comes where `stale` says meanwhile that something else is to be woven. */
  async weave(
    snapshot: Snapshot,
    { given, adds, off, answers }: Cloth,
    stale: () => boolean,
  ): Promise<Weave | undefined> {
    const { shape, halves } = snapshot;
    const cloth = { given, adds, off, answers };
    if (sizeOf(shape) * (given.length + adds) > MOST) {
      const woven = await this.#away.do<Weave>({ shape, halves, cloth });
      if (woven) return stale() ? undefined : woven;
    }
    return onPage(snapshot, cloth, stale);
  }
}

/** Weaves on the page's own thread, which may draw in between. */
async function onPage(
  { weights }: Snapshot,
  cloth: Cloth,
  stale: () => boolean,
): Promise<Weave | undefined> {
  let began = performance.now();
  for (const woven of weaving(weights, cloth)) {
    if (woven) return woven;
    if (performance.now() - began < TURN) continue;
    await new Promise((turn) => setTimeout(turn));
    if (stale()) return undefined;
    began = performance.now();
  }
  return undefined;
}
