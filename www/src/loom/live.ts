/** The visitor's run as a track. */
import { tasks } from "../tasks/index.ts";
import type { Training } from "../training.ts";
import { lettersOf, questionsOf } from "./ask.ts";
import { Track } from "./track.ts";
import { weavable } from "./weights.ts";

/** Squares of a text: letters at its end, which training never sees. */
const SQUARES = 128;
/** Bytes before them that are read, too. */
const BEFORE = 64;

/** A track for a run; undefined where its model cannot be woven letter by letter. */
export async function liveTrack(training: Training): Promise<Track | undefined> {
  const { settings, text, task, pretrained } = training;
  if (!training.ofBytes || !weavable(settings.config)) return undefined;
  const end = async () => new Uint8Array(await text.bytes.slice(-(SQUARES + BEFORE)).arrayBuffer());
  const tail = task ? undefined : await end();
  const shown = task && tasks[task].shown;
  return new Track({
    task,
    name: task ? tasks[task].label.toLowerCase() : text.name,
    steps: settings.steps,
    questions: tail ? lettersOf(tail, SQUARES) : questionsOf(training.exam ?? []),
    settings,
    source: text.source,
    pretrained,
    example: shown ? (shown.find((one) => one.length === 6) ?? shown[0]!) : beginningOf(tail!),
  });
}

/** Words of a text, which a model goes on with. */
function beginningOf(tail: Uint8Array): string {
  const text = new TextDecoder().decode(tail).replace(/\s+/g, " ");
  return text.slice(text.indexOf(" ") + 1).slice(0, 18);
}
