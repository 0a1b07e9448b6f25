/** Tables of a moment, for a spreadsheet. */
import { answer, rightOf } from "../loom/ask.ts";
import type { Moment } from "../loom/moment.ts";

import { END } from "../tasks/task.ts";

type Cell = string | number;

/** A cell as RFC 4180 has it. A spreadsheet takes no text as a formula. */
function cell(value: Cell): string {
  const text = typeof value === "string" && /^[=+\-@\t]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows of cells, the first one with the columns' names. */
export const csvOf = (rows: readonly (readonly Cell[])[]): string =>
  rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

/** The loss of each step, and how many questions were answered right where they were asked. */
export function curveCsv({ track }: Moment): string {
  const right = new Map(
    track.snapshots.flatMap(({ step, marks }) => {
      const asked = marks.get("");
      return asked ? [[step, rightOf(asked)] as const] : [];
    }),
  );
  const losses = new Map(track.losses);
  const steps = [...new Set([...right.keys(), ...losses.keys()])].sort((a, b) => a - b);
  const rows = steps.map((step) => [step, losses.get(step) ?? "", right.get(step) ?? ""]);
  return csvOf([
    ["step", "loss in nats per letter", `right of ${track.questions.length}`],
    ...rows,
  ]);
}

const text = (bytes: Uint8Array): string =>
  new TextDecoder().decode(bytes.at(-1) === END ? bytes.subarray(0, -1) : bytes);

/** Each question with the right answer and the model's at this step, with the heads that are cut. */
export function answersCsv({ track, snapshot, off }: Moment): string {
  const rows = track.questions.map((question) => {
    const { given, right } = answer(snapshot.weights, question, off);
    const asked = new TextDecoder().decode(question.prompt);
    return [asked, text(question.wanted), text(given), right ? "yes" : "no"];
  });
  return csvOf([["question", "right answer", "answer", "is right"], ...rows]);
}
