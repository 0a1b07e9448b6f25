/** Files that are read in parts. */

import { TinyloomError } from "./error.js";

/** A file, to be read in parts. */
export interface FilePart {
  readonly name: string;
  /** The name as messages have it: of a file from the network, its whole URL. */
  readonly place: string;
  /** Whether its bytes come from the network. */
  readonly remote: boolean;
  readonly size: number;
  /** The bytes from `begin` to `end`. Reading forward is cheapest. */
  read(begin: number, end: number): Promise<Uint8Array>;
  /** Gives back what reading holds, such as a connection; a later read opens it again. */
  rest?(): void;
}

/** A failure of a checkpoint's content. */
export function corrupt(message: string, cause?: unknown): TinyloomError {
  return new TinyloomError("invalid-checkpoint", message, { cause });
}
