/** The letters on the loom: below what is read, between the layers and above what the model would say. */
import type { Geometry } from "./geometry.ts";
import type { Ink } from "./ink.ts";
import type { Pen } from "./pen.ts";
import { sign, type Weave } from "./weave.ts";

/** What stands on a token's tile. */
const onTile = ({ signs }: Weave, token: number): string => signs?.get(token) ?? sign(token);

/** What is drawn with the letters. */
export interface Letters {
  readonly weave: Weave;
  readonly wanted: readonly number[] | undefined;
  readonly ghost: readonly number[];
  /** The letter that is chosen or pointed at. */
  readonly focus: number | undefined;
  /** Milliseconds since the picture before. */
  readonly elapsed: number;
}

/** Milliseconds in which a letter turns into another. */
const TURN = 220;

/** A letter that turns into another. */
interface Turning {
  letter: string;
  before: string;
  /** 0 is the letter before, 1 the letter. */
  share: number;
  strength: number;
}

interface Look {
  readonly size: number;
  readonly fill: string;
  readonly fillAlpha: number;
  readonly text: string;
  readonly textAlpha: number;
  readonly border?: string;
  readonly borderWidth?: number;
}

export class Tiles {
  readonly #turning = new Map<string, Turning>();
  #context!: Pen;
  #mono = "monospace";
  #moves = false;
  /** How wide tiles of words are; those of letters are squares. */
  #wide = 0;

  clear(): void {
    this.#turning.clear();
  }

  /** Draws all tiles. Says whether some are still turning. */
  draw(context: Pen, geometry: Geometry, ink: Ink, letters: Letters): boolean {
    this.#context = context;
    this.#mono = ink.mono;
    this.#moves = false;
    this.#wide = letters.weave.signs ? geometry.pitch - 4 : 0;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.#read(geometry, ink, letters);
    this.#lens(geometry, ink, letters);
    this.#said(geometry, ink, letters);
    this.#ghost(geometry, ink, letters);
    return this.#moves;
  }

  /** What it reads. */
  #read({ x, bottom, tile }: Geometry, ink: Ink, { weave, focus, elapsed }: Letters): void {
    for (let at = 0; at < weave.columns; at++) {
      const token = weave.tokens[at];
      const own = at >= weave.given;
      const turning = this.#turn(
        `read ${at}`,
        token === undefined ? "" : onTile(weave, token),
        1,
        elapsed,
      );
      this.#tile(x(at), bottom, turning, {
        size: tile,
        fill: own ? ink.paper : ink.surface,
        fillAlpha: token === undefined ? 0 : 1,
        text: ink.ink,
        textAlpha: 1,
        border: at === focus ? ink.ink : own ? ink.muted : ink.line,
        borderWidth: at === focus ? 2 : 1,
      });
    }
  }

  /** What it would say between two layers. */
  #lens({ x, bands, lensTile }: Geometry, ink: Ink, { weave, elapsed, focus }: Letters): void {
    for (let layer = 1; layer < weave.shape.layers; layer++) {
      for (let at = first(weave); at < weave.tokens.length; at++) {
        const { token, share } = weave.lens[layer]![at]!;
        const turning = this.#turn(`lens ${layer} ${at}`, onTile(weave, token), share, elapsed);
        this.#tile(x(at), bands[layer - 1]!.lens, turning, {
          size: lensTile,
          fill: ink.surface,
          fillAlpha: 0.35 + 0.65 * turning.strength,
          text: ink.muted,
          textAlpha: 0.45 + 0.55 * turning.strength,
          border: at === focus ? ink.muted : ink.line,
        });
      }
    }
  }

  /** What it says: the bar above is its certainty. */
  #said({ x, top, tile }: Geometry, ink: Ink, { weave, wanted, elapsed, focus }: Letters): void {
    const context = this.#context;
    for (let at = first(weave); at < weave.tokens.length; at++) {
      const { token, share } = weave.guesses[at]!;
      const turning = this.#turn(`said ${at}`, onTile(weave, token), share, elapsed);
      const right = wanted?.[at - first(weave)];
      const colour = right === undefined ? ink.ink : right === token ? ink.right : ink.wrong;
      const solid = turning.strength > 0.5;
      const on = right === undefined ? ink.paper : ink.onRight;
      this.#tile(x(at), top, turning, {
        size: tile,
        fill: colour,
        fillAlpha: solid ? 0.9 + 0.1 * turning.strength : 0.06 + 0.2 * turning.strength,
        text: solid ? on : ink.ink,
        textAlpha: 1,
        border: at === focus ? ink.ink : colour,
        borderWidth: at === focus ? 2 : 1,
      });
      context.fillStyle = ink.line;
      context.fillRect(x(at) - tile / 2, top - tile / 2 - 7, tile, 3);
      context.fillStyle = colour;
      context.fillRect(x(at) - tile / 2, top - tile / 2 - 7, tile * turning.strength, 3);
    }
  }

  /** What a recording said there. */
  #ghost({ x, ghost, pitch }: Geometry, ink: Ink, { weave, ghost: said }: Letters): void {
    const context = this.#context;
    context.fillStyle = ink.muted;
    context.globalAlpha = 0.75;
    context.font = `${Math.min(12, pitch * 0.5)}px ${this.#mono}`;
    for (const [index, token] of said.entries()) {
      const at = first(weave) + index;
      if (at < weave.columns) context.fillText(onTile(weave, token), x(at), ghost);
    }
    context.globalAlpha = 1;
  }

  #turn(key: string, letter: string, strength: number, elapsed: number): Turning {
    const turning = this.#turning.get(key) ?? { letter, before: "", share: 0, strength };
    this.#turning.set(key, turning);
    if (turning.letter !== letter) {
      Object.assign(turning, { before: turning.letter, letter, share: 0 });
    }
    turning.share = Math.min(1, turning.share + elapsed / TURN);
    turning.strength += (strength - turning.strength) * Math.min(1, elapsed / 120);
    if (turning.share < 1 || Math.abs(strength - turning.strength) > 0.01) this.#moves = true;
    return turning;
  }

  #tile(x: number, y: number, { letter, before, share }: Turning, look: Look): void {
    const context = this.#context;
    const { size, fill, fillAlpha, text, textAlpha, border, borderWidth = 1 } = look;
    if (letter !== "" || share < 1) {
      const shown = letter === "" ? 1 - share : 1;
      context.beginPath();
      const wide = Math.max(size, this.#wide);
      context.roundRect(x - wide / 2, y - size / 2, wide, size, Math.min(5, size * 0.18));
      context.globalAlpha = fillAlpha * shown;
      context.fillStyle = fill;
      context.fill();
      if (border && letter !== "") {
        context.globalAlpha = 1;
        context.lineWidth = borderWidth;
        context.strokeStyle = border;
        context.stroke();
      }
    }
    context.fillStyle = text;
    const high = Math.round(size * 0.52);
    // A letter of the font is about 0.62 of its height wide.
    const longest = Math.max(1, [...letter].length, [...before].length);
    const fits = this.#wide > 0 ? Math.min(high, this.#wide / longest / 0.62) : high;
    context.font = `600 ${fits}px ${this.#mono}`;
    // The letter before sinks while the new one comes from above.
    for (const [one, alpha, shift] of [
      [before, 1 - share, share],
      [letter, share, share - 1],
    ] as const) {
      if (one === "" || alpha <= 0) continue;
      context.globalAlpha = textAlpha * alpha;
      context.fillText(one, x, y + 1 + shift * size * 0.3);
    }
    context.globalAlpha = 1;
  }
}

/** The first letter after which the model answers; of a text without an answer every one. */
export const first = ({ given, answers }: Pick<Weave, "given" | "answers">): number =>
  answers ? given - 1 : 0;
