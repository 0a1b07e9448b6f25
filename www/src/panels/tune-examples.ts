/** Chats as tokens: those that the loss counts, and those that it leaves out. */
import { byId, make, whole } from "../dom.ts";
import type { Reading } from "../tune/tuning.ts";

/** Chats at a time, and the most tokens of one. */
const [AT_ONCE, TOKENS] = [3, 240];

/** What a token shows. One that only begins a letter has no text of its own. */
const shown = (text: string): string =>
  text === "" ? "▫" : text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥");

export class TuneExamples {
  readonly #list = byId("tune-examples", HTMLOListElement);
  readonly #more = byId("tune-more", HTMLButtonElement);
  #reading: Reading | undefined;
  /** The first chat that is shown. */
  #at = 0;

  /** @param failed - hears what goes wrong. */
  constructor(failed: (error: unknown) => void) {
    this.#more.addEventListener("click", () => {
      const count = this.#reading?.chats.length ?? 1;
      this.#at = this.#at + AT_ONCE < count ? this.#at + AT_ONCE : 0;
      this.#show().catch(failed);
    });
  }

  /** Shows the first chats. */
  async show(reading: Reading): Promise<void> {
    this.#reading = reading;
    this.#at = 0;
    const { chats, dataset } = reading;
    this.#more.hidden = chats.length <= AT_ONCE;
    await this.#show();
    const cut = byId("tune-cut", HTMLElement);
    cut.textContent = `Of a chat at most ${whole(dataset.sequenceLength + 1)} tokens are read.`;
  }

  async #show(): Promise<void> {
    const reading = this.#reading!;
    const { chats } = reading;
    const numbers = Array.from({ length: AT_ONCE }, (_, index) => this.#at + index);
    const there = numbers.filter((number) => number < chats.length);
    const items = await Promise.all(there.map((number) => this.#item(reading, number)));
    if (reading === this.#reading) this.#list.replaceChildren(...items);
  }

  async #item({ base, dataset, chats }: Reading, number: number): Promise<HTMLElement> {
    const { tokens, learned } = await dataset.document(number);
    const decoder = await base.codec.decoder();
    const chat = make("div", "chat");
    chat.tabIndex = 0;
    chat.role = "group";
    chat.setAttribute("aria-label", `Tokens of chat ${number + 1}`);
    let run: HTMLElement | undefined;
    let counted: number | undefined;
    const most = Math.min(tokens.length, dataset.sequenceLength + 1, TOKENS);
    for (const [at, token] of tokens.subarray(0, most).entries()) {
      if (!run || learned[at] !== counted) {
        counted = learned[at];
        run = counted ? make("mark", "counts") : make("span", "left-out");
        chat.append(run);
      }
      run.append(make("span", "part", shown(await decoder.push(token))));
    }
    if (most < tokens.length) chat.append(` … and ${whole(tokens.length - most)} more`);
    const sum = learned.subarray(0, most).reduce((all, one) => all + one, 0);
    const said = `chat ${number + 1} of ${whole(chats.length)}: ${sum} of ${most} tokens count`;
    return make("li", "", make("span", "sample-step", said), chat);
  }
}
