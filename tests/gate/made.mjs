// The kernels that a test made when it last ran, and what they are made of: a change of another kernel does not run the
// test again.
//
// A kernel is known by its file in shaders/, which is found in the text that the GPU got. It depends on that file with its
// imports, and on the Rust of its family below crates/kernels/src/kernels, with the families that this one uses. Which
// kernels a plan takes is tested by its golden hash.
import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { filesBelow, root, target } from "../../scripts/lib.mjs";
import { keyOf } from "./key.mjs";
import { readText, replaceText } from "./text-file.mjs";

const SHADERS = "shaders";
const FAMILIES = "crates/kernels/src/kernels";
/** Test code of a family. */
const TESTS = /\/(twin|cases)(\.rs$|\/)/;
/** Letters in which a line is none that two files have by chance. */
const TELLING = 8;

/** The name of a kernel's file without its number: that of its entry point, or of the operation without a direction. */
const nameOf = (entry) => entry.slice(3);
const DIRECTION = /_(forward|backward)$/;

const textOf = (file) => readFileSync(join(root, file), "utf8");

/** A line as a composed text has it: composing drops comments and what is left of a line. */
const plain = (line) => line.replace(/\s*\/\/.*$/, "").trim();
const linesOf = (text) =>
  text
    .split("\n")
    .map(plain)
    .filter((line) => line.length >= TELLING && !line.startsWith("#"));

/** The kernels as their sources are. */
export class Kernels {
  /** Files of kernels, without the folder and the ending. */
  entries;
  #telling = new Map();
  #imports = new Map();
  #families = new Map();

  constructor() {
    const files = filesBelow([SHADERS]).filter((path) => path.endsWith(".wgsl"));
    const owners = new Map();
    for (const file of files) {
      const text = textOf(file);
      this.#imports.set(
        file,
        [...text.matchAll(/^#import (\S+)$/gm)].map(([, path]) => `${SHADERS}/${path}.wgsl`),
      );
      for (const line of linesOf(text)) owners.set(line, owners.has(line) ? undefined : file);
    }
    const own = files.filter((file) => dirname(file) === SHADERS);
    this.entries = own.map((file) => basename(file, ".wgsl"));
    const entries = new Set(own);
    for (const [line, file] of owners)
      if (entries.has(file)) this.#telling.set(line, basename(file, ".wgsl"));
  }

  /**
   * The kernels' files of a text that a GPU got: the one with the name of its entry point, and those that have a line of the
   * text which no other file has. One too many costs a run, one too few would lose one.
   *
   * @param label - the entry point, `operation` or `operation_direction`.
   */
  in({ label, code }) {
    const names = [label, label.replace(DIRECTION, "")];
    const own = this.entries.filter((entry) => names.includes(nameOf(entry)));
    return new Set([...own, ...linesOf(code).flatMap((line) => this.#telling.get(line) ?? [])]);
  }

  /** The kernels of all texts; nothing where one of them is not known. */
  of(texts) {
    const all = texts.map((text) => this.in(text));
    if (all.some(({ size }) => size === 0)) return undefined;
    return [...new Set(all.flatMap((one) => [...one]))].sort();
  }

  /** Files of shaders/, without folder and ending, with what they import. */
  #shadersOf(paths) {
    const found = new Set();
    const visit = (file) => {
      if (found.has(file)) return;
      found.add(file);
      for (const path of this.#imports.get(file) ?? []) visit(path);
    };
    for (const path of paths) visit(`${SHADERS}/${path}.wgsl`);
    return found;
  }

  /** Rust's own files of all kernels. */
  get #common() {
    return filesBelow([FAMILIES]).filter((file) => dirname(file) === FAMILIES);
  }

  /** The families' Rust: by name its files, its kernels, and the families that it uses. */
  #family(name) {
    if (this.#families.has(name)) return this.#families.get(name);
    const files = filesBelow([`${FAMILIES}/${name}`]).filter((file) => !TESTS.test(file));
    const text = files.map(textOf).join("\n");
    const uses = [...text.matchAll(/\b(?:super|kernels)::(?:\{|(\w+))/g)].map(([, used]) => used);
    const lists = [...text.matchAll(/\b(?:super|kernels)::\{([^}]*)\}/g)].flatMap(([, list]) => [
      ...list.matchAll(/(\w+)(?:::|,|$)/g),
    ]);
    const family = {
      files,
      entries: this.entries.filter((entry) => text.includes(`"${entry}"`)),
      uses: new Set([...uses, ...lists.map(([, used]) => used)]),
    };
    this.#families.set(name, family);
    return family;
  }

  get #names() {
    const below = filesBelow([FAMILIES]).map((file) => file.slice(FAMILIES.length + 1));
    return [
      ...new Set(below.filter((path) => path.includes("/")).map((path) => path.split("/")[0])),
    ];
  }

  /** The families of kernels, with all that these use. */
  familiesOf(entries) {
    const names = this.#names;
    const found = new Set();
    const visit = (name) => {
      if (found.has(name) || !names.includes(name)) return;
      found.add(name);
      for (const used of this.#family(name).uses) visit(used);
    };
    for (const name of names)
      if (this.#family(name).entries.some((entry) => entries.includes(entry))) visit(name);
    return found;
  }

  /**
   * What of all sources a test that makes these kernels does not depend on.
   *
   * @returns whether a file is one of other kernels.
   */
  without(entries) {
    const families = this.familiesOf(entries);
    // Rust adds some files to a kernel's text that its own file does not import.
    const rust = [...this.#common, ...[...families].flatMap((name) => this.#family(name).files)];
    const added = rust.flatMap((file) => [...textOf(file).matchAll(/"(lib\/[\w/]+)"/g)]);
    const shaders = this.#shadersOf([...entries, ...added.map(([, path]) => path)]);
    return (file) => {
      if (file.startsWith(`${SHADERS}/`)) return !shaders.has(file);
      const [, name] = /^crates\/kernels\/src\/kernels\/(\w+)\//.exec(file) ?? [];
      return name !== undefined && !families.has(name);
    };
  }
}

/**
 * The kernels of each test of a file of keys when it last ran: NAME.made beside the keys. A line names a set of kernels,
 * `=SET`, or a test and its set. Where two branches' lines are joined, a test has the kernels of both. One process writes a
 * file at a time.
 */
export class Made {
  #path;
  #sets = new Map();
  #tests = new Map();

  constructor(name, folder) {
    this.#path = join(folder, `${name}.made`);
    this.#read();
  }

  #read() {
    const lines = readText(this.#path)
      .split("\n")
      .filter(Boolean)
      .map((line) => line.split("\t"));
    for (const [name, kernels] of lines)
      if (name.startsWith("=")) this.#sets.set(name.slice(1), kernels.split(" ").filter(Boolean));
    const tests = new Map();
    for (const [name, set] of lines) {
      if (name.startsWith("=") || !this.#sets.has(set)) continue;
      tests.set(name, [...new Set([...(tests.get(name) ?? []), ...this.#sets.get(set)])].sort());
    }
    this.#tests = tests;
  }

  /** The kernels that a test made; nothing where that is not known. */
  of(test) {
    return this.#tests.get(test);
  }

  /** Notes the kernels that a test has made, or that they are not known. */
  note(test, kernels) {
    if (kernels) this.#tests.set(test, [...kernels].sort());
    else if (!this.#tests.delete(test)) return;
    this.#write();
  }

  /** Drops tests that there are no more. */
  keep(names) {
    for (const test of this.#tests.keys()) if (!names.includes(test)) this.#tests.delete(test);
    this.#write();
  }

  #write() {
    const sets = new Map();
    const tests = [...this.#tests].map(([test, kernels]) => {
      const name = keyOf(...kernels).slice(0, 6);
      sets.set(name, kernels);
      return `${test}\t${name}\n`;
    });
    const named = [...sets].map(([name, kernels]) => `=${name}\t${kernels.join(" ")}\n`);
    const text = [...named.sort(), ...tests.sort()].join("");
    replaceText(this.#path, text);
  }
}

/** Where the process of a test file writes the kernels that its pages dispatched: a list, or `null`. */
export const madeFile = (path) => join(target, "made", `${path.replaceAll("/", "-")}.json`);

/** The kernels of a test file that has just run; nothing where they are not known. */
export function madeIn(path) {
  const file = madeFile(path);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) ?? undefined) : undefined;
}
