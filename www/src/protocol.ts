/** What the page and its training worker say to each other. */
import type { Capabilities, PlanRow } from "tinyloom";
import type { JudgedPiece } from "../stories/score.ts";
import type { PresetName } from "./presets.ts";
import type { RunChoices, RunSettings } from "./settings.ts";

export type TextChoice =
  | { kind: "stories" }
  | { kind: "paste"; text: string }
  | { kind: "file"; file: Blob };

export interface StartOptions extends RunChoices {
  text: TextChoice;
}

export interface Opened {
  capabilities: Capabilities;
  /** The size that fits the adapter. */
  preset: PresetName;
}

/** A run that is ready to train. */
export interface Prepared {
  settings: RunSettings;
  /** Steps already done: above 0 after a checkpoint was loaded. */
  step: number;
  parameterCount: number;
  gpuBytes: number;
  trainBytes: number;
  plan: PlanRow[];
  /** The lowest loss that any model can reach, in nats per byte; known for the stories only. */
  entropy?: number;
}

export interface GenerateRequest {
  prompt: string;
  maxTokens: number;
  temperature: number;
  seed: number;
}

export type StudioEvent =
  | { type: "step"; step: number; loss: number; tokensPerSecond: number; skipped: boolean }
  | { type: "validation"; step: number; loss: number }
  | { type: "sample"; step: number; pieces: SamplePiece[] }
  | { type: "lost"; reason: string; message: string };

/** A part of a sample; text other than the stories has no verdict. */
export type SamplePiece = JudgedPiece | { text: string; verdict?: undefined };

/** How a call of `train` ended: after the last step of the run, or at a step because of `halt`. */
export interface TrainEnd {
  finished: boolean;
  step: number;
}

/** An error on its way from the worker; Comlink would drop the code of an Error. */
export interface Failure {
  code: string;
  message: string;
}

export function isFailure(value: unknown): value is Failure {
  return typeof value === "object" && value !== null && "code" in value && "message" in value;
}
