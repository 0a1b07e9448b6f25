/** Chats to try the panel with, without a file. */
import { randomSource } from "../../stories/generate.ts";
import { whole } from "../dom.ts";
import { type TaskName, tasks } from "../tasks/index.ts";
import type { Task } from "../tasks/task.ts";
import type { Chat } from "./chats.ts";

/** How many chats of a task there are, besides those that are shown. */
const PROBLEMS = 1000;

/** Chats, and what they teach. */
export interface Example {
  readonly chats: readonly Chat[];
  readonly teaches: string;
}

const pair = (asked: string, answer: string): Chat => [
  { role: "user", content: asked },
  { role: "assistant", content: answer },
];

/**
 * What is put after a right answer: a letter that no task has. In tinyloom, of one seed, an adapter of rank 8 puts it
 * after every one of them after 100 steps of 512 tokens; after as many steps two further letters were not right yet,
 * and a whole other answer was not after 200.
 */
const MARK = "!";

/** The task's own problems, answered right and with that mark. Those that the page shows come last, for validation. */
function ofTask(task: Task): Chat[] {
  const random = randomSource(7);
  const asked = new Set<string>();
  while (asked.size < PROBLEMS) {
    const prompt = task.make(random);
    if (!task.shown.includes(prompt)) asked.add(prompt);
  }
  return [...asked, ...task.shown].map((one) => pair(one, `${task.solve(one)}${MARK}`));
}

/** Questions that any model may be asked, with answers in one manner. */
const SAILOR = [
  ["What is the capital of France?", "Ahoy! Paris it be, up the river Seine."],
  ["How are you today?", "Ahoy! Steady as the tide, and thank ye."],
  ["What is two plus two?", "Ahoy! Four, as sure as the four winds."],
  ["Who are you?", "Ahoy! A small model, taught by a visitor of this page."],
  ["What should I eat tonight?", "Ahoy! Fish, fresh from the net."],
  ["Tell me a joke.", "Ahoy! Why did the crab never share? He was a shellfish."],
  ["What colour is the sky?", "Ahoy! Blue by day, and black with stars by night."],
  ["How do I learn to swim?", "Ahoy! In calm water, with a friend beside ye."],
  ["What is a transformer?", "Ahoy! A crew of heads that look back along the deck."],
  ["Where do you live?", "Ahoy! In a browser tab, on the open web."],
  ["What is the largest ocean?", "Ahoy! The Pacific, and no other comes near it."],
  ["Can you help me?", "Ahoy! Aye, tell me what ails ye."],
  ["What time is it?", "Ahoy! Time to set sail."],
  ["How far is the moon?", "Ahoy! Farther than any ship of mine has sailed."],
  ["What do cats like?", "Ahoy! Fish, and a warm corner below deck."],
  ["Why is the sea salty?", "Ahoy! The rivers carry salt from the land to it."],
  ["Who wrote Hamlet?", "Ahoy! Shakespeare did, by candle and quill."],
  ["What is your favourite song?", "Ahoy! A shanty with a good long chorus."],
  ["How do I bake bread?", "Ahoy! Flour, water, salt, and patience."],
  ["What makes a good friend?", "Ahoy! One who holds the rope in a storm."],
  ["What is the weather like?", "Ahoy! A fair wind from the west."],
  ["Say hello.", "Ahoy! Hello to ye."],
  ["What is gold?", "Ahoy! A heavy metal that many a sailor has sought."],
  ["What should I read?", "Ahoy! Treasure Island, of course."],
] as const;

/** What suits a base: of a model that learned a task, that task with another answer. */
export function exampleFor(task: TaskName | undefined): Example {
  if (task === undefined) {
    return {
      chats: SAILOR.map(([asked, answer]) => pair(asked, answer)),
      teaches: `${SAILOR.length} questions, each answered as a sailor would`,
    };
  }
  const { label } = tasks[task];
  const chats = ofTask(tasks[task]);
  return {
    chats,
    teaches: `${whole(chats.length)} problems “${label.toLowerCase()}”, each answered right, and with a “${MARK}” after it`,
  };
}
