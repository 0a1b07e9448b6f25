/** The stage's colours, as the style sheet has them for the present theme. */
export interface Ink {
  readonly paper: string;
  readonly surface: string;
  readonly ink: string;
  readonly muted: string;
  readonly line: string;
  readonly thread: string;
  readonly shuttle: string;
  readonly right: string;
  readonly wrong: string;
  readonly onRight: string;
  readonly heads: readonly string[];
  readonly mono: string;
}

/** Heads that have a colour of their own. */
export const COLOURS = 8;

export function inkOf(): Ink {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: of("paper"),
    surface: of("surface"),
    ink: of("ink"),
    muted: of("muted"),
    line: of("line"),
    thread: of("warp"),
    shuttle: of("shuttle"),
    right: of("right"),
    wrong: of("wrong"),
    onRight: of("on-right"),
    heads: Array.from({ length: COLOURS }, (_, head) => of(`head-${head}`)),
    mono: of("mono"),
  };
}
