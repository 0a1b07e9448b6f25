/** Which run this browser was at, so that a page that comes back goes on with it. */

const KEY = "tinyloom-demo.run";

export interface Remembered {
  id: string;
  /** Whether it was training, and goes on by itself. */
  training: boolean;
  /** The part of the page's address after the `#` when it trained: another link wins over the run. */
  link?: string | undefined;
}

/** Without local storage nothing is remembered: the run is still in the list. */
export function remember(run: Omit<Remembered, "link"> | undefined): void {
  try {
    if (run) localStorage.setItem(KEY, JSON.stringify({ ...run, link: location.hash }));
    else localStorage.removeItem(KEY);
  } catch {
    // it is switched off, or full
  }
}

export function remembered(): Remembered | undefined {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/** The page has given itself another address: that is no other link. */
export function rememberAddress(): void {
  const last = remembered();
  if (last) remember(last);
}
