/** Answers of the same prompts: of the model alone, and with the adapter. */
import { byId, make } from "../dom.ts";
import { fill, tableRow } from "../table.ts";
import type { Chat } from "../tune/chats.ts";
import type { Tuning } from "../tune/tuning.ts";

/** Prompts that are proposed, and the most that are asked. */
const [PROPOSED, MOST] = [3, 12];

export class TuneAnswers {
  readonly #prompts = byId("tune-prompts", HTMLTextAreaElement);
  readonly #table = byId("tune-answers", HTMLTableElement);
  /** What the page has put into the field by itself. */
  #proposed = "";
  /** The message with which the chats begin that say how to answer. */
  #system: Chat = [];

  /** Proposes questions of the last chats, which are kept from training where there are enough. */
  propose(chats: readonly Chat[]): void {
    const [first] = chats[0] ?? [];
    this.#system = first?.role === "system" ? [first] : [];
    const asked = chats
      .slice(-PROPOSED)
      .map((chat) => chat.find(({ role }) => role === "user")?.content)
      .map((content) => typeof content === "string" && content.replaceAll(/\s*\n\s*/g, " "));
    const { value } = this.#prompts;
    if (value.trim() !== "" && value !== this.#proposed) return;
    this.#proposed = asked.filter(Boolean).join("\n");
    this.#prompts.value = this.#proposed;
  }

  /** The prompts, one a line. */
  get prompts(): string[] {
    const lines = this.#prompts.value.split("\n").map((line) => line.trim());
    return lines.filter(Boolean).slice(0, MOST);
  }

  /** A prompt as a chat. */
  chatOf(prompt: string): Chat {
    return [...this.#system, { role: "user", content: prompt }];
  }

  /** Shows the prompts without answers. */
  clear(): void {
    const rows = this.prompts.map((prompt) => tableRow(prompt, "", ""));
    fill(this.#table, ["Prompt", "Before", "After"], rows);
    byId("tune-answers-scroll", HTMLElement).hidden = rows.length === 0;
  }

  /**
   * Asks each prompt of the table, and writes the answers beside it.
   *
   * @param adapted - with the adapter.
   */
  async ask(tuning: Tuning, adapted: boolean, signal: AbortSignal): Promise<void> {
    if (adapted) this.#head.textContent = `After ${tuning.step} steps`;
    for (const row of this.#table.tBodies[0]?.rows ?? []) {
      const chat = this.chatOf(row.cells[0]!.textContent);
      const cell = row.cells[adapted ? 2 : 1]!;
      const written = make("span", "");
      cell.replaceChildren(written);
      let text = "";
      for await (const piece of tuning.answer(chat, adapted, signal)) {
        text += piece;
        written.textContent = text.trim();
      }
      if (text.trim() === "") written.textContent = "(nothing)";
    }
  }

  get #head(): HTMLElement {
    return this.#table.tHead!.rows[0]!.cells[2]!;
  }
}
