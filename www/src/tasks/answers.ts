import type { Task } from "./task.ts";

/** A problem with what the model answered, and the break behind it. */
export interface AnsweredPiece {
  text: string;
  verdict: "right" | "wrong";
  /** What is right. */
  wanted: string;
}

/** Judges lines of prompts with their answers. */
export function answered(task: Task, lines: string): AnsweredPiece[] {
  return lines.split("\n").map((line) => {
    const end = line.indexOf(task.mark);
    const prompt = line.slice(0, end);
    const given = line.slice(end + task.mark.length);
    const wanted = task.solve(prompt) ?? "";
    const arrow = task.mark === ">" ? " → " : ` ${task.mark} `;
    return { text: prompt + arrow + given, verdict: given === wanted ? "right" : "wrong", wanted };
  });
}
