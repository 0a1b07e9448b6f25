import { add } from "./add.ts";
import { brackets } from "./brackets.ts";
import { reverse } from "./reverse.ts";
import { sort } from "./sort.ts";
import type { Task } from "./task.ts";

/** The tasks by the names that the form, links and kept runs have. */
export const tasks = { reverse, sort, add, brackets } satisfies { [name: string]: Task };

export type TaskName = keyof typeof tasks;

/** The task with which the page opens. */
export const FIRST: TaskName = "reverse";

export function isTaskName(name: unknown): name is TaskName {
  return typeof name === "string" && Object.hasOwn(tasks, name);
}
