// What the page's own files say without a browser: the first words, links and pictures of a site, the manifest, colours,
// names of moments, the part of a text that is woven, and how blocks and the grey run are drawn.
// reads: www tests/page/page-module.mjs
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { pageModule } from "./page-module.mjs";

const read = (...path) => readFileSync(join(root, "www", ...path), "utf8");
const html = read("index.html");

test("before the script the page's file says what the script will say", async () => {
  const { reverse } = await pageModule("src/tasks/reverse");
  const { presets } = await pageModule("src/presets");
  const [, source] = html.split('id="text-source"');
  const chosen = /<option value="(\w+)" selected>([^<]*)<\/option>/.exec(source);
  assert.deepEqual(chosen.slice(1), ["reverse", reverse.label]);
  assert.equal(/id="task-hint">\s*([^<]*?)\s*<\/p>/.exec(html)[1], reverse.hint);
  const [, size] = /<select id="size"><option>([^<]*)<\/option>/.exec(html);
  assert.equal(size, presets.thimble.label);
});

test("links and the picture for networks come from the site's settings, or are left out", async () => {
  const { addressed } = await pageModule("vite.config");
  const nothing = addressed(html, { address: "", links: { Source: "", Package: "" } });
  assert.deepEqual(nothing.tags, []);
  assert.ok(!nothing.html.includes("<!-- links -->") && !nothing.html.includes(">Source</a>"));
  const links = { Source: "https://example.com/source", Package: "" };
  const { tags, ...known } = addressed(html, { address: "https://example.com/a/", links });
  assert.ok(known.html.includes('<a href="https://example.com/source">Source</a>'));
  assert.ok(!known.html.includes(">Package</a>"));
  const image = tags.find(({ attrs }) => attrs.property === "og:image");
  assert.deepEqual(image, {
    tag: "meta",
    attrs: { property: "og:image", content: "https://example.com/a/og.png" },
    injectTo: "head",
  });
  assert.ok(existsSync(join(root, "www", "public", "og.png")));
});

test("the manifest is the page's, and its icons are there", () => {
  const [, name] = /<link rel="manifest" href="\/([^"]*)"/.exec(html);
  const { start_url, scope, display, icons } = JSON.parse(read("public", name));
  assert.deepEqual([start_url, scope, display], ["./", "./", "standalone"]);
  assert.ok(icons.length > 0);
  for (const { src } of icons) assert.ok(existsSync(join(root, "www", "public", src)), src);
});

test("right and wrong have colours of their own, and the brand's is neither", () => {
  const all = (file, name) =>
    [...read(file).matchAll(new RegExp(`--${name}: (#\\w+);`, "g"))].map(([, color]) => color);
  const [brand, right, wrong] = [
    all("style.css", "madder"),
    all("loom.css", "right"),
    all("loom.css", "wrong"),
  ];
  assert.deepEqual([brand.length, right.length, wrong.length], [2, 2, 2], "light and dark");
  for (const theme of [0, 1]) {
    assert.equal(new Set([brand[theme], right[theme], wrong[theme]]).size, 3);
  }
});

/** A run of a task whose snapshots answered that many of eight questions, each with so many answers that ended. */
async function asked(found, task = "reverse") {
  const { Snapshot, Track } = await pageModule("src/loom/track");
  const track = new Track({ task, name: "", steps: 100, questions: [], example: "planet" });
  const shape = { layers: 0, width: 0 };
  for (const [step, right, stops] of found) {
    const snapshot = new Snapshot(step, shape, new Uint16Array(0));
    const rights = Array.from({ length: 8 }, (_, at) => at < right);
    snapshot.marks.set("", { right: rights, stops });
    track.snapshots.push(snapshot);
  }
  return track;
}

test("the curve's moments are named: noise, the first stop, the first right answer, half of them", async () => {
  const track = await asked([
    [0, 0, 0],
    [10, 0, 2],
    [20, 0, 7],
    [30, 1, 8],
    [40, 4, 8],
    [50, 8, 8],
  ]);
  const moments = track.moments.map(({ step, name }) => `${step}: ${name}`);
  assert.deepEqual(moments.slice(0, 1), ["0: noise"]);
  assert.ok(moments.includes("20: learns to stop"), moments.join());
  assert.ok(moments.includes("30: first right"), moments.join());
  assert.ok(moments.includes("40: half right"), moments.join());
});

test("of a text that is longer than the loom the part before the cursor is woven", async () => {
  const { lay } = await pageModule("src/loom/cloth");
  const text = "Once upon a time there was a small loom that wove all day long";
  const laid = (cursor, narrow) =>
    new TextDecoder().decode(lay({ example: "Once" }, text, cursor, narrow).given);
  const cursor = text.indexOf("small") + "small".length;
  assert.ok(laid(cursor, false).endsWith("was a small"));
  assert.ok(text.slice(0, cursor).endsWith(laid(cursor, false)));
  assert.equal(laid(cursor, true), "was a small".slice(-8), "a phone has room for fewer letters");
  assert.equal(laid(0, true), text.slice(-8), "no cursor: the end of it");
});

/** A weave of two letters, as an SVG file: how much the block changes each thread, and the grey run's answer. */
async function painted(changes, ghost = []) {
  const { paint } = await pageModule("src/loom/painting");
  const { geometryOf } = await pageModule("src/loom/geometry");
  const { Tiles } = await pageModule("src/loom/tiles");
  const { SvgPen } = await pageModule("src/share/svg");
  const guesses = [97, 98].map((token) => ({ token, share: 0.5 }));
  const shape = { layers: 1, heads: 1 };
  const weave = { shape, tokens: [97, 62], given: 2, answers: true, columns: 2, guesses };
  const names = ["paper", "surface", "ink", "muted", "line", "thread", "right", "wrong", "onRight"];
  const ink = Object.fromEntries(names.map((name) => [name, name]));
  const pen = new SvgPen();
  paint(pen.kit, new Tiles(), {
    weave: { ...weave, lens: [guesses], changes: [changes] },
    beside: { wanted: undefined, ghost },
    layers: [0],
    shares: new Float32Array(4),
    geometry: geometryOf({ width: 400, height: 300, columns: 2, layers: 1, named: true }),
    ink: { ...ink, shuttle: "shuttle", heads: ["head"], mono: "mono" },
    elapsed: Number.POSITIVE_INFINITY,
  });
  return pen.file(400, 300, "two letters");
}

test("a block that changes a thread more is drawn wider and darker", async () => {
  const shuttles = [...(await painted([0.1, 2])).matchAll(/<path [^>]*shuttle[^>]*>/g)];
  assert.equal(shuttles.length, 2);
  const [little, much] = shuttles.map(([path]) => {
    const [first, , turn] = /d="M([\d.]+) ([\d.]+)Q([\d.]+)/.exec(path).slice(1).map(Number);
    return { wide: turn - first, dark: Number(/opacity="([\d.]+)"/.exec(path)[1]) };
  });
  assert.ok(much.wide > 1.5 * little.wide, `${little.wide} and ${much.wide}`);
  assert.ok(much.dark > 2 * little.dark, `${little.dark} and ${much.dark}`);
});

test("the grey run's answer stands beside the model's own", async () => {
  const letters = (file) => [...file.matchAll(/<text[^>]*>([^<]*)</g)].map(([, text]) => text);
  const alone = letters(await painted([1, 1]));
  const both = letters(await painted([1, 1], [122]));
  assert.ok(!alone.includes("z") && !alone.includes("recording"));
  assert.ok(both.includes("z") && both.includes("recording"), both.join());
});
