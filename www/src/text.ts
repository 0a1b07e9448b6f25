import { TinyloomError } from "tinyloom/worker";
import { StoryJudge } from "../stories/score.ts";
import shakespeare from "../texts/shakespeare.txt?url";
import { type RunSettings, storiesFor, validationFraction } from "./settings.ts";
import { isTaskName, type TaskName, tasks } from "./tasks/index.ts";
import { problemText } from "./tasks/task.ts";

/** What the visitor chose to learn from. */
export type TextChoice =
  | { kind: TaskName | "stories" | "shakespeare" }
  | { kind: "paste"; text: string }
  | { kind: "file"; file: File };

/** A text to learn from. */
export interface Text {
  /** What the visitor knows it by. */
  name: string;
  bytes: Blob;
  /** Judges samples; of the built-in stories only. */
  judge?: StoryJudge | undefined;
  /** Whose problems the lines of the text are, if they are problems. */
  task?: TaskName | undefined;
}

const count = (bytes: Blob) => `${bytes.size.toLocaleString("en")} letters`;

/**
 * The chosen text.
 *
 * @throws TinyloomError `invalid-options` where it is too short for the settings, or cannot be loaded.
 */
export async function readText(choice: TextChoice, settings: RunSettings): Promise<Text> {
  if (isTaskName(choice.kind)) {
    const task = tasks[choice.kind];
    const bytes = new Blob([await problemText(task, settings.seed)]);
    const name = `${task.problems.toLocaleString("en")} problems “${task.label.toLowerCase()}”, seed ${settings.seed}`;
    return { name, bytes, task: choice.kind };
  }
  if (choice.kind === "stories") {
    const stories = storiesFor(settings);
    const bytes = new Blob([stories]);
    const name = `built-in stories, seed ${settings.seed}, ${count(bytes)}`;
    return { name, bytes, judge: new StoryJudge(stories) };
  }
  const [name, bytes] = await ownText(choice);
  const least = Math.ceil((settings.sequenceLength + 1) / validationFraction);
  if (bytes.size < least) {
    throw new TinyloomError(
      "invalid-options",
      `the text has ${bytes.size} letters; sequences of ${settings.sequenceLength} need at least ${least}: ` +
        "give more text or a smaller sequence length",
    );
  }
  return { name: `${name}, ${count(bytes)}`, bytes };
}

async function ownText(choice: TextChoice): Promise<[name: string, bytes: Blob]> {
  if (choice.kind === "file") return [choice.file.name, choice.file];
  if (choice.kind === "paste") return ["pasted text", new Blob([choice.text])];
  const response = await fetch(shakespeare);
  if (!response.ok) {
    throw new TinyloomError("invalid-options", `the text did not load: ${response.status}`);
  }
  return ["Shakespeare, an excerpt", await response.blob()];
}

/** A text that was kept with a run. */
export async function keptText(
  { name, stories, task }: { name: string; stories: boolean; task?: string | undefined },
  bytes: Blob,
): Promise<Text> {
  const judge = stories ? new StoryJudge(await bytes.text()) : undefined;
  return { name, bytes, judge, task: isTaskName(task) ? task : undefined };
}
