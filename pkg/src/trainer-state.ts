/** trainer_state.json: what this layer adds to the module's state, with checksums. */

import { crc32, hex } from "./crc32.js";
import type { DrawnData } from "./dataset-types.js";
import { corrupt } from "./file-part.js";
import { HEX } from "./safetensors.js";
import { damaged } from "./tensor-sum.js";

/** What this layer adds to the module's state, but for the checksums. */
export interface AddedState extends DrawnData {
  /** Whether the length of the schedule was the caller's choice. */
  readonly totalStepsGiven?: boolean;
}

/** What this layer reads of the state. */
export interface SavedState extends AddedState {
  /** `cursor` is the place in the data. */
  readonly progress: { readonly step: number; readonly cursor: number };
  /** CRC-32 of config.json, and of this state without this field as compact JSON. */
  readonly crc32?: { readonly config: string; readonly state: string };
}

const sum = (text: string) => hex(crc32(new TextEncoder().encode(text)));

/** The state's text. */
export function stateText(raw: string, config: string, added: AddedState): string {
  const state = { ...JSON.parse(raw), ...added };
  const sums = { config: sum(config), state: sum(JSON.stringify(state)) };
  return `${JSON.stringify({ ...state, crc32: sums }, null, 2)}\n`;
}

/**
 * Reads the state, which the module has found to be one.
 *
 * @throws TinyloomError `invalid-checkpoint` where it, or the config, is not as it was saved.
 */
export function readState(text: string, config: string, configName: string): SavedState {
  const { crc32: sums, ...state } = JSON.parse(text) as SavedState;
  if (sums === undefined) return state;
  if (![sums?.config, sums?.state].every((one) => HEX.test(String(one)))) {
    throw corrupt(
      `trainer_state.json: crc32 is ${JSON.stringify(sums)}, and has to be an object with config and state, of 8 ` +
        "hexadecimal digits each; the file is damaged",
    );
  }
  for (const [what, found, stated] of [
    ["trainer_state.json", sum(JSON.stringify(state)), sums.state],
    [configName, sum(config), sums.config],
  ] as const) {
    if (found !== stated) throw damaged(what, found, stated);
  }
  return state;
}
