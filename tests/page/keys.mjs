// A visit by keys alone: the way of Tab over the page, and to a control.
import assert from "node:assert/strict";

/** What Tab can come to. */
const CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex='0']";

/** In the page: what has the focus, as a test reads it; nothing where that is the page, or was it before. */
function look() {
  const { activeElement: one } = document;
  const ringed = (element) => {
    // The outline may be that of the field around it.
    for (let at = element, up = 0; at && up < 4; at = at.parentElement, up++) {
      const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(at);
      if (outlineStyle === "solid" && Number.parseFloat(outlineWidth) >= 2) return outlineColor;
    }
    return undefined;
  };
  globalThis.walked ??= [];
  const before = globalThis.walked.at(-1);
  const left = before && !before.parentElement?.contains(one) ? ringed(before) : undefined;
  if (one === document.body || globalThis.walked.includes(one)) return undefined;
  globalThis.walked.push(one);
  const { left: x, top, width, height } = one.getBoundingClientRect();
  const points = [0.5, 0.1, 0.9].map((share) => [x + width * share, top + height * share]);
  const seen = points.some(([x, y]) => {
    const there = document.elementFromPoint(x, y);
    return there && (one.contains(there) || there.contains(one));
  });
  const name = one.id || one.ariaLabel || `${one.tagName} ${one.textContent.trim().slice(0, 40)}`;
  return { name, ring: ringed(one), seen, left: left && (before.id || before.outerHTML) };
}

/** In the page: controls that Tab did not reach; and what comes before something that stands above it. */
function compare(controls) {
  for (const one of [document.documentElement, ...document.querySelectorAll(".scroll")]) {
    one.scrollTo(0, 0);
  }
  const { walked } = globalThis;
  globalThis.walked = undefined;
  const name = (one) => one.id || one.ariaLabel || one.outerHTML.slice(0, 80);
  const shown = [...document.querySelectorAll(controls)].filter(
    (one) =>
      one.tabIndex >= 0 &&
      !one.matches(":disabled") &&
      one.checkVisibility({ visibilityProperty: true }),
  );
  const boxes = walked.map((one) => one.getBoundingClientRect());
  const turned = boxes.flatMap((to, at) => {
    if (at === 0) return [];
    const from = boxes[at - 1];
    // A column may end below the beginning of the next one, which is to its right.
    const above = to.bottom <= from.top + 1 && to.left < from.right - 1;
    const beside =
      to.right <= from.left + 1 && to.top < from.bottom - 1 && to.bottom > from.top + 1;
    return above || beside ? [`${name(walked[at - 1])}, ${name(walked[at])}`] : [];
  });
  return { missed: shown.filter((one) => !walked.includes(one)).map(name), turned };
}

/**
 * Presses Tab from the top of the page through all of it. Each control is reached, in the order of the screen, in view
 * and with an outline, which it loses with the focus.
 *
 * @returns what was reached, by name.
 */
export async function walk(page, what) {
  await page.evaluate(() => {
    globalThis.walked = undefined;
    scrollTo(0, 0);
    document.activeElement.blur();
    // Where the focus was Tab would go on.
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
  });
  const names = [];
  for (;;) {
    await page.keyboard.press("Tab");
    const one = await page.evaluate(look);
    if (!one) break;
    names.push(one.name);
    assert.ok(one.ring, `${what}: ${one.name} shows that it has the focus`);
    assert.ok(one.seen, `${what}: ${one.name} is in view`);
    assert.equal(one.left, undefined, `${what}: what is left shows the focus no more`);
  }
  const { missed, turned } = await page.evaluate(compare, CONTROLS);
  assert.deepEqual(missed, [], `${what}: what Tab does not reach`);
  assert.deepEqual(turned, [], `${what}: what comes before something above it, or left of it`);
  return names;
}

/** Presses Tab until something has the focus. */
export async function tabTo(page, selector, key = "Tab") {
  for (let presses = 0; presses < 200; presses++) {
    const there = (one) => document.activeElement.matches(one);
    if (await page.evaluate(there, selector)) return;
    if (key === "Shift+Tab") await page.keyboard.down("Shift");
    await page.keyboard.press("Tab");
    if (key === "Shift+Tab") await page.keyboard.up("Shift");
  }
  assert.fail(`no ${selector} after 200 times Tab`);
}
