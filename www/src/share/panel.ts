/** What can be taken along of the moment that is shown. It loads when it is asked for. */
import { byId, copied, download } from "../dom.ts";
import { momentLink } from "../link.ts";
import type { Moment } from "../loom/moment.ts";
import type { Stage } from "../loom/stage.ts";
import { clipKind, recordClip } from "./clip.ts";
import { answersCsv, curveCsv } from "./csv.ts";
import { drawPicture, HEIGHT, nameOf, pictureOf, WIDTH } from "./picture.ts";
import { SvgPen } from "./svg.ts";

/** Size of the SVG file of the weave. */
const [WIDE, HIGH] = [960, 540];

const note = () => byId("share-note", HTMLElement);

export class SharePanel {
  readonly #stage: Stage;
  readonly #preview = byId("share-preview", HTMLCanvasElement);
  #recording = false;

  constructor(stage: Stage) {
    this.#stage = stage;
    this.#on("share-link", (moment) => this.#link(moment));
    this.#on("share-picture", async (moment) => {
      download(await pictureOf(moment), `${nameOf(moment)}.png`);
      note().textContent = "The picture is in your downloads.";
    });
    this.#on("share-svg", async (moment) => {
      download(new Blob([svgOf(moment)], { type: "image/svg+xml" }), `${nameOf(moment)}.svg`);
      note().textContent = "The drawing is in your downloads.";
    });
    this.#on("share-curve", async (moment) => table(curveCsv(moment), `${nameOf(moment)}-curve`));
    this.#on("share-answers", async (moment) =>
      table(answersCsv(moment), `${nameOf(moment)}-answers`),
    );
    this.#on("share-clip", (moment) => this.#clip(moment));
    byId("share", HTMLElement).addEventListener("keydown", turns);
  }

  /** Shows what would be shared. */
  show(): void {
    const { moment } = this.#stage;
    if (this.#recording) return;
    note().textContent = moment
      ? ""
      : "There is something to share as soon as the loom has threads.";
    for (const button of this.#buttons) button.disabled = !moment;
    if (!moment) return;
    this.#preview.width = WIDTH;
    this.#preview.height = HEIGHT;
    drawPicture(this.#preview.getContext("2d")!, moment);
    this.#preview.setAttribute("aria-label", `The picture: ${moment.title} ${moment.caption}`);
    const linked = linkOf(moment) !== undefined;
    byId("share-link", HTMLButtonElement).disabled = !linked;
    const clip = clipKind();
    byId("share-clip", HTMLButtonElement).disabled = !clip;
    byId("share-about", HTMLElement).textContent = linked
      ? "Who opens the link sees this: their own device trains the same model up to this step. On another GPU details may differ."
      : "A link needs what everybody has; this run has a text or a model of your own, which stays here.";
  }

  get #buttons(): HTMLButtonElement[] {
    return [
      ...byId("share", HTMLElement).querySelectorAll<HTMLButtonElement>(".share-ways button"),
    ];
  }

  #on(id: string, act: (moment: Moment) => Promise<void>): void {
    byId(id, HTMLButtonElement).addEventListener("click", () => {
      const { moment } = this.#stage;
      if (!moment || this.#recording) return;
      act(moment).catch((error: unknown) => {
        note().textContent = `That did not work: ${(error as Error).message}`;
      });
    });
  }

  /** While a clip is recorded no button does anything. Each keeps the focus, which a disabled one would lose. */
  #record(begins: boolean): void {
    this.#recording = begins;
    for (const button of this.#buttons) button.ariaDisabled = begins ? "true" : null;
  }

  async #link(moment: Moment): Promise<void> {
    const link = linkOf(moment)!;
    const field = byId("share-address", HTMLInputElement);
    field.value = link;
    field.hidden = false;
    const done = await copied(link);
    note().textContent = done ? "The link is in the clipboard." : "Copy the link from the field.";
    if (!done) field.select();
  }

  async #clip(moment: Moment): Promise<void> {
    this.#record(true);
    try {
      const clip = await recordClip(this.#stage, clipKind()!, (share) => {
        note().textContent = `Recording: ${Math.floor(100 * share)} %. The loom plays it meanwhile.`;
      });
      download(clip, `${nameOf(moment)}.${clip.type === "video/mp4" ? "mp4" : "webm"}`);
    } finally {
      this.#record(false);
      this.show();
    }
    note().textContent = "The clip is in your downloads.";
  }
}

/** Tab stays in the dialog: behind its last control comes its first. */
function turns(event: KeyboardEvent): void {
  if (event.key !== "Tab") return;
  const dialog = byId("share", HTMLElement);
  const all = [...dialog.querySelectorAll<HTMLElement>("button:enabled, input:not([hidden])")];
  const [from, to] = event.shiftKey ? [all[0], all.at(-1)] : [all.at(-1), all[0]];
  const { activeElement: focused } = document;
  if (focused !== from && !(event.shiftKey && focused === dialog)) return;
  event.preventDefault();
  to?.focus();
}

const linkOf = ({ track, at, off }: Moment): string | undefined =>
  momentLink({ of: track, step: Math.round(at), cut: off });

function svgOf(moment: Moment): string {
  const pen = new SvgPen();
  moment.copy(pen.kit, WIDE, HIGH);
  return pen.file(WIDE, HIGH, `${moment.title} ${moment.caption}`);
}

function table(text: string, name: string): void {
  download(new Blob([text], { type: "text/csv" }), `${name}.csv`);
  note().textContent = "The table is in your downloads.";
}
