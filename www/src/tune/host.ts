/** What the page gives the fine-tune panel. */
import type { Lab } from "../lab.ts";
import type { RunStore } from "../run-store.ts";
import type { Training } from "../training.ts";

/** What the page is to the panel. */
export interface TuneHost {
  /** The GPU and the runs; undefined without a GPU. */
  opened(): { readonly lab: Lab; readonly store: RunStore } | undefined;
  /** Whether there was a GPU, and is none any more. */
  lost(): boolean;
  /** The page's own run. */
  training(): Training | undefined;
  /** Whether the page trains, or loads something. */
  busy(): boolean;
}
