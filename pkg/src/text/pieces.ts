/** Long texts in pieces whose tokens are those of the whole. */

/** Characters of a piece. */
const PIECE = 1 << 16;
/** Characters on each side of a cut on which it is tried. */
const WINDOW = 48;
/** Places that are tried before the piece grows. */
const TRIES = 24;

type Encode = (text: string) => ArrayLike<number> | Promise<ArrayLike<number>>;

/** Where a piece ends and where the next begins: after a space that the tokenizer puts there itself. */
interface Cut {
  readonly end: number;
  readonly next: number;
}

/**
 * The tokens of a text, encoded in pieces of about 64 thousand characters. A text is cut where the
 * characters around the cut have the same tokens with and without it: with most tokenizers before white
 * space. Where no such place is found in a quarter of a million characters, the cut may change tokens.
 */
export async function* encodePieces(
  texts: AsyncIterable<string> | Iterable<string>,
  encode: Encode,
): AsyncGenerator<ArrayLike<number>> {
  let rest = "";
  for await (const text of texts) {
    rest += text;
    while (rest.length >= PIECE * 1.25) {
      const cut = await findCut(rest, encode);
      if (!cut) break;
      yield await encode(rest.slice(0, cut.end));
      rest = rest.slice(cut.next);
    }
  }
  if (rest) yield await encode(rest);
}

async function findCut(text: string, encode: Encode): Promise<Cut | undefined> {
  let tries = 0;
  for (let at = Math.min(PIECE, text.length - WINDOW); at > PIECE / 2 && tries < TRIES; at--) {
    if (!/\s/.test(text[at] as string) || /\s/.test(text[at - 1] as string)) continue;
    tries += 1;
    const cut = await tried(text, at, encode);
    if (cut) return cut;
  }
  // Scripts without spaces: anywhere but within a character.
  for (let at = Math.min(PIECE, text.length - WINDOW), i = 0; i < TRIES * 2; i++, at--) {
    if (inCharacter(text, at)) continue;
    const cut = await tried(text, at, encode);
    if (cut) return cut;
  }
  if (text.length < PIECE * 4) return undefined;
  const at = inCharacter(text, PIECE) ? PIECE - 1 : PIECE;
  return { end: at, next: at };
}

const inCharacter = (text: string, at: number) => /[\udc00-\udfff]/.test(text[at] as string);

async function tried(text: string, at: number, encode: Encode): Promise<Cut | undefined> {
  const begin = at - WINDOW + (inCharacter(text, at - WINDOW) ? 1 : 0);
  const end = at + WINDOW + (inCharacter(text, at + WINDOW) ? 1 : 0);
  const whole = [...Array.from(await encode(text.slice(begin, end)))].join();
  const before = Array.from(await encode(text.slice(begin, at)));
  for (const next of text[at] === " " ? [at, at + 1] : [at]) {
    const after = Array.from(await encode(text.slice(next, end)));
    if ([...before, ...after].join() === whole) return { end: at, next };
  }
  return undefined;
}
