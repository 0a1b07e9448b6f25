/**
 * The recording of the opening run: its weights every few steps, as bench/figures/record.mjs stores them.
 *
 * A file is the length of its header in four bytes, the header in JSON, then a frame for each snapshot. A frame is the
 * difference to the snapshot before in multiples of the header's grain, a byte for each weight, compressed as
 * `deflate-raw`. The page computes everything that it shows from these weights.
 */
import type { ModelConfig } from "tinyloom";
import { defaultSeed, presets } from "../presets.ts";
import { reverse } from "../tasks/reverse.ts";
import { questionsOf } from "./ask.ts";
import { recordingFile } from "./recording-file.ts";
import { Snapshot, Track } from "./track.ts";
import { narrowed, sizeOf, weavable } from "./weights.ts";

interface Header {
  /** The day, as `2026-11-29`. */
  readonly date: string;
  readonly adapter: string;
  readonly config: ModelConfig;
  readonly grain: number;
  /** The loss of each step, in thousandths. */
  readonly losses: readonly number[];
  readonly words: readonly string[];
  readonly frames: readonly {
    readonly step: number;
    readonly bytes: number;
    /** A digit for each word: whether the model of these weights answers it. */
    readonly right: string;
    readonly stops: number;
  }[];
}

/** Bytes of a stream, as many at a time as are asked for. */
class Reader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #left: Uint8Array = new Uint8Array(0);

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  async take(count: number): Promise<Uint8Array<ArrayBuffer>> {
    const taken = new Uint8Array(count);
    let at = 0;
    while (at < count) {
      if (this.#left.length === 0) {
        const { value, done } = await this.#reader.read();
        if (done) throw new Error("the recording ends too early");
        this.#left = value;
      }
      const part = this.#left.subarray(0, count - at);
      taken.set(part, at);
      at += part.length;
      this.#left = this.#left.subarray(part.length);
    }
    return taken;
  }
}

async function inflated(packed: Uint8Array<ArrayBuffer>): Promise<Int8Array> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Int8Array(await new Response(stream).arrayBuffer());
}

/** Loads the recording, as `readRecording` reads it. */
export async function loadRecording(
  begin: (track: Track) => void,
  more: (numbers: Float32Array) => void,
): Promise<void> {
  const response = await recordingFile();
  if (!response.ok || !response.body) throw new Error(`the recording: ${response.status}`);
  await readRecording(response.body, begin, more);
}

/**
 * Reads a recording. Its snapshots come one after another.
 *
 * @param begin - gets the track once its header is there.
 * @param more - hears the weights of each snapshot, in 32 bits.
 */
export async function readRecording(
  stream: ReadableStream<Uint8Array>,
  begin: (track: Track) => void,
  more: (numbers: Float32Array) => void,
): Promise<void> {
  const reader = new Reader(stream);
  const size = new DataView((await reader.take(4)).buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(await reader.take(size))) as Header;
  const shape = weavable(header.config);
  if (!shape) throw new Error("the recording is of a model that cannot be woven");
  const day = new Date(header.date).toLocaleDateString("en", { dateStyle: "long" });
  const problems = header.words.map((word) => ({
    prompt: `${word}${reverse.mark}`,
    completion: reverse.solve(word) ?? "",
  }));
  const track = new Track({
    recorded: `a recording of ${day} on ${header.adapter}`,
    task: "reverse",
    name: "reverse a word",
    steps: header.losses.length,
    questions: questionsOf(problems),
    settings: { ...presets.thimble, ...reverse.training, seed: defaultSeed },
    source: "reverse",
    pretrained: false,
    example: "planet",
  });
  for (const [at, loss] of header.losses.entries()) track.learn(at + 1, loss / 1000);
  begin(track);
  const weights = new Float32Array(sizeOf(shape));
  for (const { step, bytes, right, stops } of header.frames) {
    const change = await inflated(await reader.take(bytes));
    for (let at = 0; at < weights.length; at++) weights[at]! += change[at]! * header.grain;
    const snapshot = new Snapshot(step, shape, narrowed(weights));
    snapshot.marks.set("", { right: [...right].map((one) => one === "1"), stops });
    track.add(snapshot);
    more(weights);
  }
  track.end();
}
