/** A file to which lines are added: JSON Lines, in each of which the last field is the checksum of the rest. */

import { crc32, hex } from "../crc32.js";
import { TinyloomError } from "../error.js";
import { show } from "../options.js";
import { type Disk, type Path, writeAll } from "./disk.js";

const encoder = new TextEncoder();

/** A line with its checksum. */
const SUMMED = /^(\{.*),"crc32":"([0-9a-f]{8})"\}$/s;

/** What a log keeps. */
export interface Entry {
  readonly step: number;
}

/** A log, whose entries have a step. */
export class Log {
  readonly #disk: Disk;
  readonly #path: Path;
  readonly #arrange: (entries: readonly Entry[]) => Entry[];
  #waiting: Entry[] = [];
  /** Bytes of the file, once it is known to end with a whole line. */
  #size: number | undefined;
  /** Lines of the file, once they are known. */
  #count: number | undefined;

  /** @param arrange - what becomes of the entries, in the order in which they came, when they are read. */
  constructor(disk: Disk, path: Path, arrange: (entries: readonly Entry[]) => Entry[]) {
    this.#disk = disk;
    this.#path = path;
    this.#arrange = arrange;
  }

  /** Takes an entry as JSON has it, to be written with the next `flush`. */
  add(entry: Entry): void {
    this.#waiting.push(JSON.parse(JSON.stringify(entry)));
  }

  /** Writes lines of an exported run; damaged ones stay, and are told when they are read. */
  async take(text: string | undefined): Promise<void> {
    if (!text) return;
    const lines = text.split("\n").filter((line) => line !== "");
    const written = lines.map((line) => (parse(line) ? line : (plainLine(line) ?? line)));
    await writeAll(this.#disk, this.#path, encoder.encode(`${written.join("\n")}\n`));
  }

  /** The entries as JSON Lines without checksums; damaged lines are left out. */
  async plain(): Promise<string> {
    const entries = (await this.#lines()).lines.flatMap((line) => parse(line) ?? []);
    return this.#arrange(entries)
      .map((entry) => `${JSON.stringify(entry)}\n`)
      .join("");
  }

  /** Writes what was added. */
  async flush(): Promise<void> {
    if (this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    const bytes = encoder.encode(waiting.map(lineOf).join(""));
    const at = this.#size ?? (await this.#repair());
    const file = await this.#disk.create(this.#path, true);
    try {
      await file.write(bytes, at);
      await file.flush();
    } finally {
      await file.close();
    }
    this.#size = at + bytes.length;
    if (this.#count !== undefined) this.#count += waiting.length;
    this.#waiting = this.#waiting.slice(waiting.length);
  }

  /** How many lines the file has. */
  async count(): Promise<number> {
    this.#count ??= (await this.#lines()).lines.length;
    return this.#count;
  }

  /** What is wrong with the file, which had `expected` lines or more; undefined where nothing is. */
  async problem(expected: number): Promise<string | undefined> {
    const name = this.#path.at(-1);
    try {
      const { lines } = await this.#lines();
      const damaged = lines.findIndex((line) => !parse(line));
      if (damaged >= 0) return `${name}: line ${damaged + 1} is damaged`;
      if (lines.length >= expected) return undefined;
      return `${name} has ${lines.length} of the ${expected} lines that it had at the newest checkpoint`;
    } catch (cause) {
      return `${name} could not be read: ${show(cause)}`;
    }
  }

  /**
   * All entries, also those that are not written yet.
   *
   * @throws TinyloomError `invalid-checkpoint` where a line is damaged.
   */
  async read(): Promise<Entry[]> {
    const entries: Entry[] = [];
    const { lines } = await this.#lines();
    for (const [at, line] of lines.entries()) {
      const entry = parse(line);
      if (!entry) {
        const message = `${this.#path.join("/")}: line ${at + 1} is damaged; the checkpoints are not affected`;
        throw new TinyloomError("invalid-checkpoint", message);
      }
      entries.push(entry);
    }
    return this.#arrange([...entries, ...this.#waiting]);
  }

  /** The file's lines. The last one, if it was cut off while it was written, is left out. */
  async #lines(): Promise<{ lines: string[]; cut: boolean }> {
    const file = await this.#disk.find(this.#path);
    if (!file) return { lines: [], cut: false };
    const lines = new TextDecoder().decode((await file.read(0, file.size)).slice()).split("\n");
    const last = lines.pop() as string;
    // A whole line whose end is another character was not cut off: it is damaged.
    if (last && parse(last.slice(0, -1))) lines.push(last);
    return { lines, cut: last !== "" };
  }

  /** Takes away a last line that was cut off; gives the file's size. */
  async #repair(): Promise<number> {
    const { lines, cut } = await this.#lines();
    const bytes = encoder.encode(lines.map((line) => `${line}\n`).join(""));
    if (cut) await writeAll(this.#disk, this.#path, bytes);
    this.#count = lines.length;
    return bytes.length;
  }
}

function lineOf(entry: Entry): string {
  const text = JSON.stringify(entry);
  return `${text.slice(0, -1)},"crc32":"${sumOf(text)}"}\n`;
}

const sumOf = (text: string) => hex(crc32(encoder.encode(text)));

/** An entry whose checksum is right. */
function parse(line: string): Entry | undefined {
  const [, body, sum] = SUMMED.exec(line) ?? [];
  // Earlier versions wrote the checksum before the entry.
  const [text, stated] = body === undefined ? [line.slice(9), line.slice(0, 8)] : [`${body}}`, sum];
  const old = body === undefined && line[8] !== " ";
  return !old && stated === sumOf(text) ? JSON.parse(text) : undefined;
}

/** The line of an entry that came without a checksum; undefined where it is none. */
function plainLine(line: string): string | undefined {
  try {
    const entry = JSON.parse(line) as Partial<Entry> | null;
    const sound = Number.isInteger(entry?.step) && !SUMMED.test(line);
    return sound ? lineOf(entry as Entry).trimEnd() : undefined;
  } catch {
    return undefined;
  }
}

/** Entries in order; one of an earlier step than those before it begins the log again from there. */
export function withoutRepeated(entries: readonly Entry[]): Entry[] {
  const kept: Entry[] = [];
  let reached = -1;
  for (const entry of entries) {
    if (entry.step < reached) while ((kept.at(-1)?.step ?? -1) >= entry.step) kept.pop();
    kept.push(entry);
    reached = entry.step;
  }
  return kept;
}

/** All entries by their step; those of one step in the order in which they came. */
export const byStep = (entries: readonly Entry[]): Entry[] =>
  [...entries].sort((a, b) => a.step - b.step);
