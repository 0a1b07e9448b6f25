/** Tokens of a text, each tinted by its probability; pointing at one tells what else could have stood there. */
import { byId, make } from "../dom.ts";
import type { WrittenToken } from "../sample.ts";

/** What each element shows. */
const shown = new WeakMap<Element, WrittenToken>();

/** White space, which has no sign of its own. */
const NAMES: { readonly [text: string]: string } = { " ": "space", "\n": "line break" };

/** Bytes that are no letter, controls, and what no font has; and the sign that stands for them. */
const ODD = /\ufffd|(?!\n)\p{C}/gu;
const NO_LETTER = "·";

const percent = (probability: number): string =>
  probability < 0.01 ? "below 1 %" : `${Math.round(100 * probability)} %`;

/** A text with a sign for each byte that is no letter. */
export const readable = (text: string): string => text.replace(ODD, NO_LETTER);

/** A token, or the part of one that is in a piece. The less likely, the stronger the tint. */
export function tokenElement(token: WrittenToken, text = token.text): HTMLElement | string {
  const seen = readable(text);
  if (token.probability === undefined) return seen;
  const element = make("span", "token", seen);
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

/** What `Codec.name` calls a token of this text. */
const nameOf = (text: string): string => NAMES[text] ?? text;

/** A token and what else could have stood there, in words. */
function described({ text, probability = 0, alternatives = [] }: WrittenToken): string {
  const others = alternatives.map(([name, share]) => `${name} ${percent(share)}`);
  const named = NAMES[text] === undefined ? `“${text}”` : `the ${NAMES[text]}`;
  const drawn = `${named} had a probability of ${percent(probability)}`;
  return others.length === 0 ? drawn : `${drawn}. Likeliest here: ${others.join(", ")}`;
}

/** Pixels between a token and its card, and between the card and the window's edge. */
const [GAP, EDGE] = [6, 8];

/** Shows beside a token how likely each of its alternatives was; without a token the card goes. */
function showCard(element: Element | undefined): void {
  const card = byId("token-card", HTMLElement);
  const { text = "", alternatives = [] } = (element && shown.get(element)) ?? {};
  card.hidden = !element || alternatives.length === 0;
  if (!element || card.hidden) return;
  const bars = alternatives.map(([name, share]) => {
    const bar = make("span", name === nameOf(text) ? "bar chosen" : "bar");
    bar.style.setProperty("--share", share.toFixed(3));
    return make("div", "", make("b", "", name), bar, make("span", "", percent(share)));
  });
  card.replaceChildren(...bars);
  const { left, top, bottom } = element.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = card;
  const below = bottom + GAP + height + EDGE <= innerHeight;
  card.style.left = `${Math.max(EDGE, Math.min(left, innerWidth - width - EDGE))}px`;
  card.style.top = `${below ? bottom + GAP : top - GAP - height}px`;
}

/**
 * Lets a visitor read the tokens in an element: by pointing, by touch, or with the arrow keys once the element has
 * the focus. A card beside the token shows its alternatives.
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
    showCard(current);
  };
  const leave = () => choose(undefined);
  const under = ({ target }: Event) =>
    (target instanceof Element && target.closest(".token")) || undefined;
  const point = (event: Event) => {
    const token = under(event);
    if (token) choose(token);
  };
  host.addEventListener("pointerover", point);
  host.addEventListener("click", point);
  host.addEventListener("pointerleave", leave);
  host.addEventListener("blur", leave);
  for (const scrolled of [host, window]) {
    scrolled.addEventListener("scroll", () => {
      if (current) showCard(within(host, current)); // the card may be of another text
    });
  }
  // A text that is written again has other tokens.
  new MutationObserver(() => {
    if (current && !current.isConnected) leave();
  }).observe(host, { childList: true, subtree: true });
  host.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const tokens = [...host.querySelectorAll(".token")].filter(isVisible);
    const at = current ? tokens.indexOf(current) + move : 0;
    const next = tokens[Math.min(Math.max(at, 0), tokens.length - 1)];
    next?.scrollIntoView({ block: "nearest" });
    choose(next);
  });
}

const isVisible = (element: Element): boolean => element.getClientRects().length > 0;

/** The element, where its host's scrolling leaves it in view. */
function within(host: Element, element: Element): Element | undefined {
  const [outer, inner] = [host.getBoundingClientRect(), element.getBoundingClientRect()];
  return inner.top >= outer.top && inner.bottom <= outer.bottom ? element : undefined;
}
