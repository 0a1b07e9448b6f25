/** An SVG file of what is drawn with a pen. */
import type { Kit, Pen, Threads } from "../loom/pen.ts";

const ANCHORS: { readonly [align in CanvasTextAlign]: string } = {
  left: "start",
  start: "start",
  center: "middle",
  right: "end",
  end: "end",
};

/** Places to a tenth of a pixel. */
const at = (...numbers: number[]): string => numbers.map((one) => Number(one.toFixed(1))).join(" ");

const ESCAPES: { readonly [sign: string]: string } = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
};

export const escaped = (text: string): string => text.replace(/[&<>"]/g, (sign) => ESCAPES[sign]!);

class Path implements Threads {
  d = "";

  moveTo(x: number, y: number): void {
    this.d += `M${at(x, y)}`;
  }

  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void {
    this.d += `C${at(ax, ay, bx, by, x, y)}`;
  }
}

export class SvgPen implements Pen {
  lineWidth = 1;
  lineCap: CanvasLineCap = "butt";
  strokeStyle: Pen["strokeStyle"] = "#000";
  fillStyle: Pen["fillStyle"] = "#000";
  globalAlpha = 1;
  font = "10px sans-serif";
  textAlign: CanvasTextAlign = "start";
  textBaseline: CanvasTextBaseline = "alphabetic";
  #d = "";
  readonly #parts: string[] = [];

  /** This pen, for what draws threads. */
  get kit(): Kit<Path> {
    return { pen: this, path: () => new Path(), stroke: ({ d }) => this.#stroke(d) };
  }

  beginPath(): void {
    this.#d = "";
  }

  moveTo(x: number, y: number): void {
    this.#d += `M${at(x, y)}`;
  }

  lineTo(x: number, y: number): void {
    this.#d += `L${at(x, y)}`;
  }

  quadraticCurveTo(ax: number, ay: number, x: number, y: number): void {
    this.#d += `Q${at(ax, ay, x, y)}`;
  }

  roundRect(x: number, y: number, width: number, height: number, radius: number): void {
    const corner = `a${at(radius, radius)} 0 0 1 `;
    const [w, h, r] = [width - 2 * radius, height - 2 * radius, radius];
    this.#d +=
      `M${at(x + r, y)}h${at(w)}${corner}${at(r, r)}v${at(h)}${corner}${at(-r, r)}` +
      `h${at(-w)}${corner}${at(-r, -r)}v${at(-h)}${corner}${at(r, -r)}z`;
  }

  fill(): void {
    this.#add(`<path d="${this.#d}" ${this.#filled}/>`);
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    const [left, top, wide, high] = [x, y, width, height].map((one) => at(one));
    this.#add(`<rect x="${left}" y="${top}" width="${wide}" height="${high}" ${this.#filled}/>`);
  }

  fillText(text: string, x: number, y: number): void {
    const base = this.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
    this.#add(
      `<text x="${at(x)}" y="${at(y)}" text-anchor="${ANCHORS[this.textAlign]}"${base} ` +
        `style="font:${escaped(this.font)}" ${this.#filled}>${escaped(text)}</text>`,
    );
  }

  stroke(): void {
    this.#stroke(this.#d);
  }

  /** The file. */
  file(width: number, height: number, title: string): string {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">` +
      `<title>${escaped(title)}</title>\n${this.#parts.join("\n")}\n</svg>\n`
    );
  }

  #stroke(d: string): void {
    this.#add(
      `<path d="${d}" fill="none" stroke="${String(this.strokeStyle)}" stroke-width="${at(this.lineWidth)}" ` +
        `stroke-linecap="${this.lineCap}"${this.#alpha("stroke")}/>`,
    );
  }

  get #filled(): string {
    return `fill="${String(this.fillStyle)}"${this.#alpha("fill")}`;
  }

  #alpha(what: "fill" | "stroke"): string {
    return this.globalAlpha < 1 ? ` ${what}-opacity="${Number(this.globalAlpha.toFixed(3))}"` : "";
  }

  #add(part: string): void {
    if (this.globalAlpha > 0) this.#parts.push(part);
  }
}
