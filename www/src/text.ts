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
  /** What the visitor knows it by. */
  name: string;
  bytes: Blob;
  /** Judges samples; of the built-in stories only. */
  judge?: StoryJudge | undefined;
}

const count = (bytes: Blob) => `${bytes.size.toLocaleString("en")} bytes`;

/**
 * The chosen text.
 *
 * @throws TinyloomError `invalid-options` where it is too short for the settings.
 */
export function readText(choice: TextChoice, settings: RunSettings): Text {
  if (choice.kind === "stories") {
    const stories = storiesFor(settings);
    const bytes = new Blob([stories]);
    const name = `built-in stories, seed ${settings.seed}, ${count(bytes)}`;
    return { name, bytes, judge: new StoryJudge(stories) };
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
  const name = choice.kind === "file" ? choice.file.name : "pasted text";
  return { name: `${name}, ${count(bytes)}`, bytes };
}

/** A text that was kept with a run. */
export async function keptText(name: string, bytes: Blob, stories: boolean): Promise<Text> {
  return { name, bytes, judge: stories ? new StoryJudge(await bytes.text()) : undefined };
}
