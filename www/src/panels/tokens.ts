/** Tokens of a text, each tinted by its probability; pointing at one tells what else could have stood there. */
import { make } from "../dom.ts";
import type { WrittenToken } from "../sample.ts";

/** What each element shows. */
const shown = new WeakMap<Element, WrittenToken>();

const percent = (probability: number): string =>
  probability < 0.01 ? "below 1 %" : `${Math.round(100 * probability)} %`;

/** A token, or the part of one that is in a piece. The less likely, the stronger the tint. */
export function tokenElement(token: WrittenToken, text = token.text): HTMLElement | string {
  if (token.probability === undefined) return text;
  const element = make("span", "token", text);
  element.style.setProperty("--doubt", (1 - token.probability).toFixed(2));
  shown.set(element, token);
  return element;
}

/** The part of a text from one letter to another, as the tokens that it was written in. */
export function tokensBetween(
  tokens: readonly WrittenToken[],
  from: number,
  to: number,
): (HTMLElement | string)[] {
  const elements: (HTMLElement | string)[] = [];
  let begin = 0;
  for (const token of tokens) {
    const end = begin + token.text.length;
    const part = token.text.slice(Math.max(0, from - begin), Math.max(0, to - begin));
    if (part !== "") elements.push(tokenElement(token, part));
    begin = end;
  }
  return elements;
}

/** A token and what else could have stood there, in words. */
function described({ text, probability = 0, alternatives = [] }: WrittenToken): string {
  const names: { [text: string]: string } = { " ": "the space", "\n": "the line break" };
  const others = alternatives.map(([name, share]) => `${name} ${percent(share)}`);
  const drawn = `${names[text] ?? `“${text}”`} had a probability of ${percent(probability)}`;
  return others.length === 0 ? drawn : `${drawn}. Likeliest here: ${others.join(", ")}`;
}

/**
 * Lets a visitor read the tokens in an element: by pointing, by touch, or with the arrow keys once the element has
 * the focus.
 *
 * @param says - what it is read in.
 */
export function readTokens(host: HTMLElement, says: HTMLElement): void {
  const hint = says.textContent ?? "";
  let current: Element | undefined;
  const choose = (next: Element | undefined) => {
    current?.classList.remove("current");
    current = next;
    current?.classList.add("current");
    const token = current && shown.get(current);
    says.textContent = token ? described(token) : hint;
  };
  const under = ({ target }: Event) =>
    (target instanceof Element && target.closest(".token")) || undefined;
  const point = (event: Event) => {
    const token = under(event);
    if (token) choose(token);
  };
  host.addEventListener("pointerover", point);
  host.addEventListener("click", point);
  host.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const tokens = [...host.querySelectorAll(".token")].filter(isVisible);
    const at = current ? tokens.indexOf(current) + move : 0;
    choose(tokens[Math.min(Math.max(at, 0), tokens.length - 1)]);
    current?.scrollIntoView({ block: "nearest" });
  });
}

const isVisible = (element: Element): boolean => element.getClientRects().length > 0;
