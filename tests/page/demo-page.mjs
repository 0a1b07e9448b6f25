// The demo page as a person uses it: by its controls, in a real browser.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { record } from "../gate/record.mjs";

const axe = readFileSync(join(root, "node_modules", "axe-core", "axe.min.js"), "utf8");
const shots = join(target, "screenshots");
export const DESKTOP = { width: 1280, height: 900 };
export const PHONE = {
  width: 390,
  height: 844,
  deviceScaleFactor: 2,
  isMobile: false,
  hasTouch: false,
};

/** Seconds that anything may take which a test waits for, a navigation included. */
const LONGEST = 180;
/** Seconds that a call of the browser may take. */
export const CALL = LONGEST;
/** Seconds in which a page says what it does, for the message of a test that fails. */
const TELLING = 20;

export const number = (text) => Number.parseFloat(text.replaceAll(",", ""));
export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** The promise's value; an error once it takes longer. No call of a browser has a limit of its own. */
export async function within(seconds, what, promise) {
  let timer;
  const late = new Promise((_, fail) => {
    const error = new Error(`no ${what} within ${seconds} s`);
    timer = setTimeout(() => fail(error), seconds * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** The longest task of the main thread since the page was opened or this was called, in milliseconds. */
export function longestTask(page) {
  return page.evaluate(async () => {
    // The buffer may hold tasks of before; the time tells.
    const since = globalThis.asked ?? 0;
    globalThis.asked = performance.now();
    const tasks = await new Promise((done) => {
      const seen = [];
      new PerformanceObserver((list) => seen.push(...list.getEntries())).observe({
        type: "longtask",
        buffered: true,
      });
      setTimeout(() => done(seen), 100);
    });
    const late = tasks.filter(({ startTime }) => startTime >= since);
    return Math.max(0, ...late.map(({ duration }) => duration));
  });
}

const dist = join(root, "www", "dist");

/** The path of a built file by the beginning of its name, which has a hash behind it. */
export function asset(name) {
  const file = readdirSync(join(dist, "assets")).find((one) => one.startsWith(`${name}-`));
  assert.ok(file, `no asset ${name}`);
  return `/assets/${file}`;
}

/** The built worker that asks, each of whose answers comes so much later. */
export function slowWorker(milliseconds) {
  const path = asset("asking-worker");
  const slow = `const late=postMessage;postMessage=(m)=>setTimeout(()=>late(m),${milliseconds});\n`;
  const built = readFileSync(join(dist, path));
  return { [path]: Buffer.concat([Buffer.from(slow), built]) };
}

/** Heads of the benchmark's configurations that are to fit no memory. */
const OF_MID = "num_attention_heads:6,num_key_value_heads:2";
const OF_SEED = "num_attention_heads:12,num_key_value_heads:4";

/**
 * What a server gives in place of the benchmark's configurations: the first is the demo's smallest model, which hardly
 * warms up, and the other two fit no memory. The code that measures stays as it is.
 */
export function quickBenchmark() {
  const path = asset("workloads");
  let text = readFileSync(join(dist, path), "utf8");
  for (const [from, to] of [
    [
      "hidden_size:128,intermediate_size:384,num_hidden_layers:4",
      "hidden_size:64,intermediate_size:192,num_hidden_layers:2",
    ],
    [`num_hidden_layers:6,${OF_MID}`, `num_hidden_layers:400,${OF_MID}`],
    [`num_hidden_layers:12,${OF_SEED}`, `num_hidden_layers:200,${OF_SEED}`],
    ["performance.now()+1e3", "performance.now()+1"],
  ]) {
    assert.equal(text.split(from).length, 2, `${from} occurs once in ${path}`);
    text = text.replace(from, to);
  }
  return { [path]: Buffer.from(text) };
}

/** Everything that tests do to the page and read from it. */
export class Demo {
  /** Errors of the page's console. */
  errors = [];
  /** Kinds of the dialogs that the page has asked with, and whether they are accepted. */
  dialogs = [];
  accepts = true;

  static async open(browser, url) {
    const demo = new Demo();
    // First an empty one: a dialog that opens while the page loads has to be answered, too, or nothing goes on.
    demo.page = await openPage(browser, "about:blank", (type, text) => {
      if (type === "error") demo.errors.push(text);
    });
    await record(demo.page);
    demo.page.setDefaultTimeout(LONGEST * 1000);
    demo.page.on("dialog", (dialog) => {
      demo.dialogs.push(dialog.type());
      const answered = demo.accepts ? dialog.accept() : dialog.dismiss();
      answered.catch(() => undefined); // its tab has gone
    });
    await demo.page.setViewport(DESKTOP);
    await demo.page.goto(url, { waitUntil: "load" });
    return demo;
  }

  text(id) {
    return this.page.$eval(`#${id}`, (element) => (element.value ?? element.textContent).trim());
  }

  state() {
    return this.page.$eval("body", (body) => body.dataset.state);
  }

  async step() {
    return number((await this.text("step")) || "0") || 0;
  }

  async click(id) {
    await this.page.$eval(`#${id}`, (element) => element.click());
  }

  async fill(id, value) {
    await this.page.$eval(
      `#${id}`,
      (element, value) => {
        element.value = value;
        element.dispatchEvent(new Event("input", { bubbles: true }));
        element.dispatchEvent(new Event("change", { bubbles: true }));
      },
      value,
    );
  }

  /** Lets the page write to the clipboard, or not; what it writes goes nowhere. */
  clipboard(allowed) {
    return this.page.evaluate((allowed) => {
      const value = async () => {
        if (!allowed) throw new DOMException("denied", "NotAllowedError");
      };
      Object.defineProperty(navigator.clipboard, "writeText", { value, configurable: true });
    }, allowed);
  }

  /** Waits until the condition holds; says what it waited for and what the page showed. */
  async until(what, condition, seconds = LONGEST) {
    const end = Date.now() + seconds * 1000;
    while (!(await within(seconds, what, condition()))) {
      const told = Promise.all([this.state(), this.text("error"), this.step()]);
      const [state, error, step] = await within(TELLING, `word of the page beside ${what}`, told);
      assert.notEqual(state, "error", `the page failed while waiting for ${what}: ${error}`);
      assert.ok(Date.now() < end, `no ${what} within ${seconds} s; state ${state}, step ${step}`);
      await sleep(100);
    }
  }

  /**
   * Waits for an element. It asks again and again, so that no single call of the browser waits for something that
   * does not come.
   */
  appears(selector, seconds = LONGEST) {
    return this.until(selector, async () => (await this.page.$(selector)) !== null, seconds);
  }

  /** Halts the run after its next step from this one on, however late this process hears of that step. */
  async pauseFrom(step) {
    await this.page.evaluate((from) => {
      document.addEventListener("tinyloom:training", function pauses({ detail }) {
        if (detail.type !== "step" || detail.step < from) return;
        document.removeEventListener("tinyloom:training", pauses);
        document.getElementById("pause").click();
      });
    }, step);
  }

  async untilState(...states) {
    await this.until(states.join(" or "), async () => states.includes(await this.state()));
  }

  /** Holds the page as it is to axe, in light or dark. */
  async axe(theme, name = "") {
    // In one go: `$$eval` would first ask for the elements, and a page that trains may show one of them meanwhile.
    const shown = await this.page.evaluate(() =>
      [...document.querySelectorAll("[hidden]")]
        .filter((one) => getComputedStyle(one).display !== "none")
        .map(({ id }) => id),
    );
    assert.deepEqual(shown, [], "what is hidden, and shown by a style");
    await this.page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await this.page.evaluate(axe);
    const found = await this.page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, {
        resultTypes: ["violations"],
        // Of WCAG 2.2 AA, and off by default.
        rules: { "target-size": { enabled: true } },
      });
      return violations.map(
        ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" | ")}`,
      );
    });
    assert.deepEqual(found, [], `axe, ${theme}, ${await this.state()} ${name}`);
  }

  /** Opens all that can be opened, or closes it. */
  unfold(open = true) {
    return this.page.$$eval(
      "details",
      (all, open) => {
        for (const one of all) one.open = open;
      },
      open,
    );
  }

  /** Takes a picture of the page, or of a part of it, once nothing of it is wider than the screen. */
  async shot(name, viewport, part) {
    await this.page.setViewport(viewport);
    await sleep(300);
    const wide = await this.page.evaluate(() => {
      if (document.documentElement.scrollWidth <= innerWidth) return [];
      const all = [...document.body.querySelectorAll("*")];
      const beyond = all.filter(
        (one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll > *"),
      );
      return beyond.slice(0, 5).map((one) => one.outerHTML.slice(0, 120));
    });
    assert.deepEqual(wide, [], `what is wider than the ${name} screen`);
    mkdirSync(shots, { recursive: true });
    const path = join(shots, `${name}.png`);
    if (part) await (await this.page.$(part)).screenshot({ path });
    else await this.page.screenshot({ path, fullPage: true });
  }

  /** The runs of the table: name, result, and who got furthest. */
  runs() {
    return this.page.$$eval("#runs tbody tr", (rows) =>
      rows.map(({ cells }) => ({
        name: cells[1].querySelector("input").value,
        learned: cells[2].textContent,
        result: cells[4].textContent,
        furthest: cells[5].textContent,
        buttons: Object.fromEntries(
          [...cells[7].querySelectorAll("button")].map((one) => [
            one.textContent,
            !one.matches(":disabled, [aria-disabled=true]"),
          ]),
        ),
      })),
    );
  }

  /** Presses a button of a run. */
  press(button, name) {
    return this.page.$eval(`#runs [aria-label="${button} ${name}"]`, (element) => element.click());
  }

  /** Presses a button that hands out a file, and gives its name and its bytes as text. */
  async saved(id) {
    const saving = this.page.evaluate(async (id) => {
      const { click } = HTMLAnchorElement.prototype;
      const link = await new Promise((done) => {
        HTMLAnchorElement.prototype.click = function () {
          done(this);
        };
        document.getElementById(id).click();
      });
      HTMLAnchorElement.prototype.click = click;
      return { name: link.download, text: await (await fetch(link.href)).text() };
    }, id);
    return within(60, `file of ${id}`, saving);
  }

  /** Exports a run, and gives the file that the browser would have downloaded. */
  async export(name) {
    // The button of a run that has just ended is not enabled yet.
    const button = `#runs [aria-label="Export ${name}"]:enabled`;
    await this.until(
      `a button that exports ${name}`,
      async () => (await this.page.$(button)) !== null,
    );
    return this.savedFile(button, `export of ${name}`);
  }

  /** Presses what hands out a file, and gives the file that the browser would have downloaded. */
  async savedFile(selector, what = `file of ${selector}`) {
    // A headless browser has no download to look at: the link's Blob is read instead.
    const saving = this.page.evaluate(async (selector) => {
      const { click } = HTMLAnchorElement.prototype;
      const link = await new Promise((done) => {
        HTMLAnchorElement.prototype.click = function () {
          done(this);
        };
        document.querySelector(selector).click();
      });
      HTMLAnchorElement.prototype.click = click;
      const blob = await (await fetch(link.href)).blob();
      const reader = new FileReader();
      await new Promise((done) => {
        reader.onload = done;
        reader.readAsDataURL(blob);
      });
      return { file: link.download, content: reader.result.split(",")[1] };
    }, selector);
    const { file, content } = await within(60, what, saving).catch(async (cause) => {
      throw new Error(`${cause.message}; the page says: ${await this.text("error")}`, { cause });
    });
    return new File([Buffer.from(content, "base64")], file);
  }

  /** Drops files on the page, or on a part of it. */
  async drop(files, selector = "body") {
    const contents = [];
    for (const [name, blob] of Object.entries(files)) {
      const bytes = Buffer.from(await blob.arrayBuffer());
      contents.push([name, bytes.toString("base64")]);
    }
    await this.page.evaluate(
      async (contents, selector) => {
        const transfer = new DataTransfer();
        for (const [name, content] of contents) {
          const bytes = await (await fetch(`data:;base64,${content}`)).arrayBuffer();
          transfer.items.add(new File([bytes], name));
        }
        document
          .querySelector(selector)
          .dispatchEvent(
            new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }),
          );
      },
      contents,
      selector,
    );
  }

  /** What the model writes after a prompt when it takes the likeliest byte each time. */
  async likeliest(prompt, count) {
    await this.fill("prompt", prompt);
    await this.fill("temperature", "0");
    await this.fill("max-tokens", String(count));
    await this.click("generate");
    const busy = () =>
      this.page.$eval("#output", (one) => one.getAttribute("aria-busy") === "true");
    await this.until("text", async () => !(await busy()));
    return this.page.$eval("#output", (one) => one.lastChild.textContent);
  }
}
