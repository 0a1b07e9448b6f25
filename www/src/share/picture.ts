/** A picture of a moment, in the size that social networks show. */

import { rightOf } from "../loom/ask.ts";
import { inkOf } from "../loom/ink.ts";
import type { Moment } from "../loom/moment.ts";
import { canvasKit } from "../loom/pen.ts";
import type { Track } from "../loom/track.ts";

/** Size of the picture in pixels. */
export const [WIDTH, HEIGHT] = [1200, 630];

const EDGE = 48;
/** The loom's place and size. */
const LOOM = { x: EDGE, y: 158, width: 776, height: 352 };
/** The squares' place, the length of one with its gap, and how many are in a row. */
const SQUARES = { x: 872, y: 196, each: 17.5, gap: 3, row: 16 };
/** The curve's place and size. */
const CURVE = { x: EDGE + 84, y: 534, width: 692, height: 66 };
const POINTS = 240;
/** The place and the room of the digits' map. */
const MAP = { x: 872, y: 388, width: 280, height: 116 };

interface Words {
  text: string;
  x: number;
  y: number;
  font: string;
  colour: string;
  /** Pixels that it may take. */
  room: number;
}

/** Writes a line. Where it is too long its letters are smaller. */
function write(context: CanvasRenderingContext2D, { text, x, y, font, colour, room }: Words): void {
  context.font = font;
  context.fillStyle = colour;
  const size = Number(/(\d+)px/.exec(font)![1]);
  const { width } = context.measureText(text);
  if (width > room) {
    const fitting = Math.floor((size * room) / width);
    context.font = font.replace(/\d+px/, `${fitting}px`);
  }
  context.fillText(text, x, y, room);
}

/** Draws a moment on a canvas of `WIDTH` × `HEIGHT`. */
export function drawPicture(context: CanvasRenderingContext2D, moment: Moment): void {
  const ink = inkOf();
  const style = getComputedStyle(document.documentElement);
  const [brand, serif] = ["--madder", "--serif"].map((name) => style.getPropertyValue(name).trim());
  const sans = "system-ui, sans-serif";
  const room = WIDTH - 2 * EDGE;
  context.save();
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillStyle = ink.paper;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  context.fillStyle = brand!;
  context.fillRect(0, 0, WIDTH, 10);
  const { title, caption } = moment;
  write(context, { text: title, x: EDGE, y: 74, font: `600 42px ${serif}`, colour: ink.ink, room });
  const said = sentences(caption, 110);
  write(context, { text: said, x: EDGE, y: 114, font: `20px ${sans}`, colour: ink.muted, room });
  context.save();
  context.translate(LOOM.x, LOOM.y);
  moment.copy(canvasKit(context), LOOM.width, LOOM.height);
  context.restore();
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  squares(context, moment, ink);
  curve(context, moment, ink, brand!);
  map(context, moment, ink);
  const right = { x: SQUARES.x, room: WIDTH - EDGE - SQUARES.x };
  const step = `step ${moment.snapshot.step}`;
  write(context, { ...right, text: step, y: 556, font: `20px ${sans}`, colour: ink.muted });
  write(context, { ...right, text: "tinyloom", y: 598, font: `600 34px ${serif}`, colour: brand! });
  context.restore();
}

/** Of a text as many sentences as a line has room for; one at least. */
function sentences(text: string, room: number): string {
  const [first = "", ...others] = text.match(/[^.]+(\.\d+[^.]*)*\./g) ?? [text];
  return others.reduce(
    (said, one) => (said.length + one.length <= room ? said + one : said),
    first,
  );
}

type Ink = ReturnType<typeof inkOf>;

function squares(context: CanvasRenderingContext2D, moment: Moment, ink: Ink): void {
  const { x, y, each, gap, row } = SQUARES;
  const { marks, track } = moment;
  const room = WIDTH - EDGE - x;
  const sans = "system-ui, sans-serif";
  write(context, {
    text: moment.squares,
    x,
    y: y - 14,
    font: `17px ${sans}`,
    colour: ink.muted,
    room,
  });
  for (const index of track.questions.keys()) {
    context.fillStyle = marks?.right[index] ? ink.right : ink.line;
    context.beginPath();
    const [column, line] = [index % row, Math.floor(index / row)];
    context.roundRect(x + column * each, y + line * each, each - gap, each - gap, 2.5);
    context.fill();
  }
  const below = y + Math.ceil(track.questions.length / row) * each + 34;
  const count = marks ? `${rightOf(marks)} right` : "not asked yet";
  write(context, { text: count, x, y: below, font: `600 30px ${sans}`, colour: ink.ink, room });
}

/** The digits' map, where digits are sorted. */
function map(context: CanvasRenderingContext2D, { map: shown }: Moment, ink: Ink): void {
  if (!shown || shown.width === 0) return;
  const { x, width, y, height } = MAP;
  const scale = Math.min(width / shown.width, height / shown.height);
  context.drawImage(shown, x, y, shown.width * scale, shown.height * scale);
  context.font = "15px system-ui, sans-serif";
  context.fillStyle = ink.muted;
  context.fillText("its own map of the digits", x, y + shown.height * scale + 20);
}

function curve(
  context: CanvasRenderingContext2D,
  { track, ghost, at }: Moment,
  ink: Ink,
  brand: string,
): void {
  const { x, y, width, height } = CURVE;
  const steps = Math.max(1, track.steps);
  const most = Math.max(track.highest, ghost?.highest ?? 0) * 1.02;
  const place = (step: number) => x + (width * Math.min(step, steps)) / steps;
  const draw = (one: Track, colour: string, line: number) => {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.lineJoin = "round";
    context.beginPath();
    for (const [step, loss] of one.curve(POINTS)) {
      context.lineTo(place(step), y + height * (1 - Math.min(1, loss / most)));
    }
    context.stroke();
  };
  context.fillStyle = ink.line;
  context.fillRect(x, y + height, width, 1);
  if (ghost) draw(ghost, ink.line, 2);
  draw(track, brand, 3);
  context.fillStyle = ink.ink;
  context.fillRect(place(at) - 0.75, y, 1.5, height);
  context.beginPath();
  context.arc(place(at), y + height, 7, 0, 2 * Math.PI);
  context.fill();
  context.textAlign = "right";
  context.font = "15px system-ui, sans-serif";
  context.fillStyle = ink.muted;
  context.fillText("surprise", x - 10, y + height / 2);
  context.textAlign = "left";
}

/** What files of a moment are called, without an ending. */
export const nameOf = ({ track, at }: Moment): string =>
  `tinyloom ${track.source} step ${Math.round(at)}`;

/** The picture as a PNG. */
export async function pictureOf(moment: Moment): Promise<Blob> {
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH;
  canvas.height = HEIGHT;
  drawPicture(canvas.getContext("2d")!, moment);
  return new Promise((done, fail) => {
    canvas.toBlob(
      (blob) => (blob ? done(blob) : fail(new Error("no picture was made"))),
      "image/png",
    );
  });
}
