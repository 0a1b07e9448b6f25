import { TinyloomError } from "tinyloom/worker";
import { storyLines } from "../stories/generate.ts";
import { StoryJudge, sentencesOf } from "../stories/score.ts";
import shakespeare from "../texts/shakespeare.txt?url";
import { whole } from "./dom.ts";
import { type RunSettings, storyBytes, validationFraction } from "./settings.ts";
import { isTaskName, type TaskName, tasks } from "./tasks/index.ts";
import { problemText } from "./tasks/task.ts";
import { inTurns } from "./turns.ts";
import { unreachable } from "./words.ts";

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
  /** Where it is from, by its name in the form. */
  source: TextSource;
}

export type TextSource = TextChoice["kind"];

const count = (bytes: Blob) => `${whole(bytes.size)} letters`;

/** Problems that are made before they are asked for. */
let ahead: { kind: TaskName; seed: number; text: Promise<string> } | undefined;

/** Begins to make the problems that `readText` is asked for next: what it waits for may take as long. */
export function makeAhead(kind: TaskName, seed: number): void {
  ahead = { kind, seed, text: problemText(tasks[kind], seed) };
}

function problemsOf(kind: TaskName, seed: number): Promise<string> {
  const made = ahead;
  ahead = undefined;
  return made?.kind === kind && made.seed === seed ? made.text : problemText(tasks[kind], seed);
}

/**
 * The chosen text.
 *
 * @throws TinyloomError `invalid-options` where it is too short for the settings, or cannot be loaded.
 */
export async function readText(choice: TextChoice, settings: RunSettings): Promise<Text> {
  if (isTaskName(choice.kind)) {
    const task = tasks[choice.kind];
    const bytes = new Blob([await problemsOf(choice.kind, settings.seed)]);
    const name = `${whole(task.problems)} problems “${task.label.toLowerCase()}”, seed ${settings.seed}`;
    return { name, bytes, task: choice.kind, source: choice.kind };
  }
  if (choice.kind === "stories") {
    const lines = await inTurns(storyLines(settings.seed, storyBytes(settings)));
    const bytes = new Blob(lines);
    const name = `built-in stories, seed ${settings.seed}, ${count(bytes)}`;
    return { name, bytes, judge: await judgeOf(lines), source: "stories" };
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
  return { name: `${name}, ${count(bytes)}`, bytes, source: choice.kind };
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

const [PASTED, PLAYS] = ["pasted text", "Shakespeare, an excerpt"];

async function ownText(choice: TextChoice): Promise<[name: string, bytes: Blob]> {
  if (choice.kind === "file") {
    await refuseBinary(choice.file);
    return [choice.file.name, choice.file];
  }
  if (choice.kind === "paste") return [PASTED, new Blob([choice.text])];
  const response = await fetch(shakespeare).catch(unreachable);
  if (!response.ok) {
    throw new TinyloomError("invalid-options", `the text did not load: ${response.status}`);
  }
  return [PLAYS, await response.blob()];
}

/** Bytes of a file that are looked at, and the shares of those that a text has at most. */
const LOOKED = 65_536;
const [CONTROLS, FOREIGN] = [0.02, 0.3];
/** Control characters that texts have: tabs, line breaks, and the escape of terminals. */
const USUAL = new Set([9, 10, 11, 12, 13, 27]);

/** Refuses what is no text: a picture, a program, an archive. */
async function refuseBinary(file: File): Promise<void> {
  const bytes = new Uint8Array(await file.slice(0, LOOKED).arrayBuffer());
  const controls = bytes.filter((byte) => byte < 32 && !USUAL.has(byte)).length;
  // Of a text in another encoding than UTF-8 the letters with accents are foreign, and few.
  const foreign = new TextDecoder().decode(bytes).match(/\ufffd/g)?.length ?? 0;
  if (controls <= CONTROLS * bytes.length && foreign <= FOREIGN * bytes.length) return;
  const share = (100 * Math.max(controls, foreign)) / bytes.length;
  throw new TinyloomError(
    "invalid-options",
    `“${file.name}” is no text: ${whole(share)} % of its beginning are no letters. Choose a text file`,
  );
}

/** A text that was kept with a run. */
export async function keptText(
  { name, stories, task }: { name: string; stories: boolean; task?: string | undefined },
  bytes: Blob,
): Promise<Text> {
  const judge = stories ? await judgeOf((await bytes.text()).split("\n")) : undefined;
  if (isTaskName(task)) return { name, bytes, judge, task, source: task };
  return { name, bytes, judge, source: stories ? "stories" : sourceOf(name) };
}

/** Where a text without a right answer is from, by the name that `readText` gave it. */
function sourceOf(name: string): TextSource {
  if (name.startsWith(`${PLAYS}, `)) return "shakespeare";
  return name.startsWith(`${PASTED}, `) ? "paste" : "file";
}
