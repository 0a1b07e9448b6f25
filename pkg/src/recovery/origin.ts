/** How a model began: what it is made of again where it has no snapshot. */

import type { TinyloomError } from "../error.js";
import type { ModelNotes } from "../notes.js";
import type { RawLoader, RawModel, RawRuntime, RawTrainer, Seen } from "../raw-types.js";

export interface Origin {
  /** Makes it again; a resumed one with its trainer. */
  again(on: RawRuntime, seen: Seen): Promise<{ model: RawModel; trainer?: RawTrainer }>;
  /** Whether it is a function of numbers alone, and so the same whenever it is made again. */
  readonly seeded?: true;
  /** What was seen of what it was loaded from. */
  readonly seen?: Seen;
  /** What the files of a model say besides. */
  readonly notes?: ModelNotes | undefined;
  /** An adapter has names of its files, what takes its tensors, and what the model under it comes back by. */
  readonly adapted?: {
    readonly names: readonly string[];
    readonly under: { readonly gone: TinyloomError | undefined } | undefined;
    loader(config: string): Promise<RawLoader>;
  };
}
