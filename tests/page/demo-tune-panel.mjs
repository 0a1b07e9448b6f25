// The fine-tune panel of the demo page, as its tests read and use it.
import assert from "node:assert/strict";
import { within } from "./demo-page.mjs";

export class Tune {
  constructor(demo) {
    this.demo = demo;
  }

  get page() {
    return this.demo.page;
  }

  text(id) {
    return this.demo.text(`tune-${id}`);
  }

  state() {
    return this.page.$eval("#tune-panel", (panel) => panel.dataset.state);
  }

  /** Waits for a state of the panel, in which nothing is being asked any more. */
  async until(state, seconds = 120) {
    await this.demo.until(
      `the panel's ${state}`,
      async () => {
        const error = await this.text("error");
        assert.equal(error, "", `the panel failed while waiting for ${state}`);
        return (await this.state()) === state;
      },
      seconds,
    );
  }

  async said(pattern, seconds = 120) {
    const said = async () => pattern.test(await this.text("status"));
    await this.demo.until(`"${pattern}"`, said, seconds);
  }

  /**
   * Hands files to the panel by `hand`, and waits until it has heard of them: a browser hands them over later, and until
   * then the panel shows what it made of those before.
   */
  async bring(hand) {
    await this.page.$eval("#tune-panel", (panel) => {
      globalThis.tuneHeard = new Promise((done) => {
        const heard = (_, observer) => {
          observer.disconnect();
          done();
        };
        new MutationObserver(heard).observe(panel, { attributeFilter: ["data-state"] });
      });
    });
    await hand();
    await within(
      30,
      "panel that has heard of the files",
      this.page.evaluate(() => globalThis.tuneHeard),
    );
  }

  /** Drops files on the panel. */
  drop(files) {
    return this.bring(() => this.demo.drop(files, "#tune-panel"));
  }

  /** Waits for an error of the panel, and gives its words and what is behind "details". */
  async failure() {
    await this.page.waitForSelector("#tune-error:not([hidden])", { timeout: 60_000 });
    const words = await this.page.$eval("#tune-error .words", (one) => one.textContent);
    return { words, whole: await this.text("error") };
  }

  /** Whether each button does something now. */
  buttons() {
    return this.page.$$eval(
      "#tune-start, #tune-pause, #tune-stop, #tune-save, #tune-again",
      (all) =>
        Object.fromEntries(
          all.map((one) => [one.id.slice(5), !one.matches(":disabled, [aria-disabled=true]")]),
        ),
    );
  }

  /** The chats that are shown: text of what counts, and of what is left out. */
  examples() {
    return this.page.$$eval("#tune-examples li", (items) =>
      items.map((item) => {
        const text = (kind) =>
          [...item.querySelectorAll(`${kind} .part`)].map((part) => part.textContent).join("");
        return {
          counts: text(".counts"),
          out: text(".left-out"),
          said: item.firstChild.textContent,
        };
      }),
    );
  }

  /** What the chosen model is called. */
  base() {
    return this.page.$eval("#tune-base", (one) => one.selectedOptions[0].text);
  }

  answers() {
    return this.page.$$eval("#tune-answers tbody tr", (rows) =>
      rows.map(({ cells }) => [...cells].map(({ textContent }) => textContent)),
    );
  }

  bytes() {
    return this.page.$eval("#tune-estimate", ({ dataset }) => Number(dataset.bytes));
  }

  /** Changes a choice, and waits for what it takes. */
  async choose(id, value) {
    const before = await this.bytes();
    await this.demo.fill(`tune-${id}`, value);
    await this.demo.until(`bytes of ${id}`, async () => (await this.bytes()) !== before, 30);
    return this.bytes();
  }
}
