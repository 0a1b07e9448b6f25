/** What the loom is drawn with: a canvas, or an SVG file. */

/** A path of threads, drawn in one go. */
export interface Threads {
  moveTo(x: number, y: number): void;
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void;
}

/** The part of a canvas's context that the loom uses. Lengths are in CSS pixels. */
export interface Pen {
  lineWidth: number;
  lineCap: CanvasLineCap;
  strokeStyle: string | CanvasGradient | CanvasPattern;
  fillStyle: string | CanvasGradient | CanvasPattern;
  globalAlpha: number;
  font: string;
  textAlign: CanvasTextAlign;
  textBaseline: CanvasTextBaseline;
  beginPath(): void;
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  quadraticCurveTo(ax: number, ay: number, x: number, y: number): void;
  roundRect(x: number, y: number, width: number, height: number, radius: number): void;
  fill(): void;
  fillRect(x: number, y: number, width: number, height: number): void;
  fillText(text: string, x: number, y: number): void;
  stroke(): void;
}

/** A pen with what makes and draws its paths of threads. */
export interface Kit<Path extends Threads = Threads> {
  readonly pen: Pen;
  path(): Path;
  stroke(path: Path): void;
}

/** Draws on a canvas. */
export const canvasKit = (pen: CanvasRenderingContext2D): Kit<Path2D> => ({
  pen,
  path: () => new Path2D(),
  stroke: (path) => pen.stroke(path),
});
