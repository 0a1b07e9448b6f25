import { TinyloomError } from "tinyloom/worker";
import { StoryJudge } from "../stories/score.ts";
import { type RunSettings, storiesFor, validationFraction } from "./settings.ts";

/** What the visitor chose to learn from. */
export type TextChoice =
  | { kind: "stories" }
  | { kind: "paste"; text: string }
  | { kind: "file"; file: File };

/** A text to learn from. */
export interface Text {
  bytes: Blob;
  /** Judges samples of the built-in stories. */
  judge?: StoryJudge | undefined;
}

/**
 * The chosen text.
 *
 * @throws TinyloomError `invalid-options` where it is too short for the settings.
 */
export function readText(choice: TextChoice, settings: RunSettings): Text {
  if (choice.kind === "stories") {
    const stories = storiesFor(settings);
    return { bytes: new Blob([stories]), judge: new StoryJudge(stories) };
  }
  const bytes = choice.kind === "file" ? choice.file : new Blob([choice.text]);
  const least = Math.ceil((settings.sequenceLength + 1) / validationFraction);
  if (bytes.size < least) {
    throw new TinyloomError(
      "invalid-options",
      `the text has ${bytes.size} bytes; sequences of ${settings.sequenceLength} need at least ${least}: ` +
        "give more text or a smaller sequence length",
    );
  }
  return { bytes };
}
