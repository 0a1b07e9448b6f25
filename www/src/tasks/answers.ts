import type { Task } from "./task.ts";

/** A problem with what the model answered, and the break after it. */
export interface AnsweredPiece {
  text: string;
  verdict: "right" | "wrong";
  /** What is right. */
  wanted: string;
  /** The answer, with which the text ends, and its place in the lines. */
  given: string;
  at: number;
}

/** The mark between a problem and its answer, as a visitor sees it. */
export const shownMark = ({ mark }: Task): string => (mark === ">" ? " → " : ` ${mark} `);

/** Judges lines of prompts with their answers. */
export function answered(task: Task, lines: string): AnsweredPiece[] {
  let begin = 0;
  return lines.split("\n").map((line) => {
    const end = line.indexOf(task.mark);
    const prompt = line.slice(0, end);
    const given = line.slice(end + task.mark.length);
    const wanted = task.solve(prompt) ?? "";
    const at = begin + end + task.mark.length;
    begin += line.length + 1;
    const verdict = given === wanted ? "right" : "wrong";
    return { text: prompt + shownMark(task) + given, verdict, wanted, given, at };
  });
}

/** The longest problem whose letters all differ, with its answer: its letters tell places apart. */
export function clearest(lines: readonly string[]): string {
  const clear = lines.filter((line) => {
    const [problem = ""] = line.split(/[>=]/);
    return problem !== "" && new Set(problem).size === problem.length;
  });
  return clear.reduce(
    (most, line) => (line.length > most.length ? line : most),
    clear[0] ?? lines[0] ?? "",
  );
}
