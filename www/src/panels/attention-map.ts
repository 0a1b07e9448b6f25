/** A picture of all looks of a head at once: a row per letter, a column per letter that it may look at. */

/** Pixels of the letters' margin, and the smallest field beside which a letter can be read. */
const [MARGIN, READABLE] = [22, 10];

/** Size of a field, and of the margin that the letters have. */
function layout(canvas: HTMLCanvasElement, count: number): { field: number; margin: number } {
  const width = canvas.clientWidth;
  const lettered = (width - MARGIN) / count >= READABLE;
  const margin = lettered ? MARGIN : 0;
  return { field: (width - margin) / count, margin };
}

/**
 * Draws it in the page's colours, with the pixels of the screen.
 *
 * @param texts - what each row and column is called.
 * @param shares - rows one after the other, each of which adds up to 1.
 * @param current - the row that is framed.
 */
export function drawAttention(
  canvas: HTMLCanvasElement,
  texts: readonly string[],
  shares: Float32Array,
  current: number,
): void {
  const count = texts.length;
  const { field, margin } = layout(canvas, count);
  const scale = devicePixelRatio;
  canvas.width = canvas.height = Math.round(canvas.clientWidth * scale);
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
  for (const [at, share] of shares.entries()) {
    const [row, column] = [Math.floor(at / count), at % count];
    if (column > row) continue; // nobody looks ahead
    const place = [margin + column * field, margin + row * field, field - 1, field - 1] as const;
    context.globalAlpha = 1;
    context.fillStyle = color("paper");
    context.fillRect(...place);
    // The root makes faint looks visible.
    context.globalAlpha = Math.sqrt(share);
    context.fillStyle = color("madder");
    context.fillRect(...place);
  }
  context.globalAlpha = 1;
  context.strokeStyle = color("indigo");
  context.lineWidth = 2;
  const reach = (current + 1) * field;
  context.strokeRect(margin, margin + current * field, reach - 1, field - 1);
  if (margin > 0) label(context, texts, { field, margin }, [color("muted"), color("ink")], current);
}

/** Writes the letters beside the rows and above the columns. */
function label(
  context: CanvasRenderingContext2D,
  texts: readonly string[],
  { field, margin }: { field: number; margin: number },
  [ink, strong]: readonly [string, string],
  current: number,
): void {
  context.font = `${Math.min(14, field)}px ui-monospace, monospace`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const [at, text] of texts.entries()) {
    const along = margin + (at + 0.5) * field;
    context.fillStyle = at === current ? strong : ink;
    context.fillText(text, margin / 2, along, margin);
    context.fillStyle = ink;
    context.fillText(text, along, margin / 2, field);
  }
}

/** The row at a place of the page; undefined beside the rows. */
export function rowAt(
  canvas: HTMLCanvasElement,
  count: number,
  clientY: number,
): number | undefined {
  const { field, margin } = layout(canvas, count);
  const row = Math.floor((clientY - canvas.getBoundingClientRect().top - margin) / field);
  return row >= 0 && row < count ? row : undefined;
}
