import { TinyloomError } from "tinyloom/worker";
import { storyLines } from "../stories/generate.ts";
import { StoryJudge, sentencesOf } from "../stories/score.ts";
import shakespeare from "../texts/shakespeare.txt?url";
import { whole } from "./dom.ts";
import { type RunSettings, storyBytes, validationFraction } from "./settings.ts";
import { isTaskName, type TaskName, tasks } from "./tasks/index.ts";
import { problemText } from "./tasks/task.ts";
import { inTurns } from "./turns.ts";

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

const count = (bytes: Blob) => `${whole(bytes.size)} letters`;

/**
 * The chosen text.
 *
 * @throws TinyloomError `invalid-options` where it is too short for the settings, or cannot be loaded.
 */
export async function readText(choice: TextChoice, settings: RunSettings): Promise<Text> {
  if (isTaskName(choice.kind)) {
    const task = tasks[choice.kind];
    const bytes = new Blob([await problemText(task, settings.seed)]);
    const name = `${whole(task.problems)} problems “${task.label.toLowerCase()}”, seed ${settings.seed}`;
    return { name, bytes, task: choice.kind };
  }
  if (choice.kind === "stories") {
    const lines = await inTurns(storyLines(settings.seed, storyBytes(settings)));
    const bytes = new Blob(lines);
    const name = `built-in stories, seed ${settings.seed}, ${count(bytes)}`;
    return { name, bytes, judge: await judgeOf(lines) };
  }
  const [name, bytes] = await ownText(choice);
  const least = Math.ceil((settings.sequenceLength + 1) / validationFraction);
  if (bytes.size < least) {
    throw new TinyloomError(
      "invalid-options",
      `the text has ${whole(bytes.size)} letters; a model that sees ${settings.sequenceLength} letters at once needs ` +
        `at least ${whole(least)}: give more text, or let it see fewer at once`,
    );
  }
  return { name: `${name}, ${count(bytes)}`, bytes };
}

/** Judges samples by the stories that are learned. */
async function judgeOf(lines: readonly string[]): Promise<StoryJudge> {
  const seen = new Set<string>();
  function* read() {
    for (const line of lines)
      yield sentencesOf(line).forEach((sentence) => void seen.add(sentence));
  }
  await inTurns(read());
  return new StoryJudge(seen);
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
  const judge = stories ? await judgeOf((await bytes.text()).split("\n")) : undefined;
  return { name, bytes, judge, task: isTaskName(task) ? task : undefined };
}
