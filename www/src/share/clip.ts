/** A clip of how a run became what is shown. The browser's own recorder makes it while it plays. */
import type { Moment } from "../loom/moment.ts";
import type { Stage } from "../loom/stage.ts";
import { drawPicture, HEIGHT, WIDTH } from "./picture.ts";

/** Seconds of the clip, those at its end that stand still, and pictures a second. */
const [SECONDS, STILL, RATE] = [10, 1.5, 30];
/** Bits a second: enough that thin threads stay sharp. */
const BITS = 6_000_000;
/** Milliseconds in which the threads come to a stand, and those that the first weave may take. */
const [GLIDES, PATIENCE] = [400, 3000];
/** The first steps are shown slower: time goes with this power. */
const SLOW_START = 1.7;
/** By preference: what most apps play, then what each browser can make. */
const KINDS = [
  "video/mp4;codecs=avc1.42E01F",
  "video/webm;codecs=vp9",
  "video/webm;codecs=vp8",
  "video/webm",
];

/** The kind of clip that this browser makes; undefined where it makes none. */
export const clipKind = (): string | undefined =>
  typeof MediaRecorder === "undefined"
    ? undefined
    : KINDS.find((kind) => MediaRecorder.isTypeSupported(kind));

/** The step that is shown after a share of the clip. */
export const stepAt = (end: number, share: number): number =>
  end * Math.min(1, share) ** SLOW_START;

/**
 * Plays the run on the stage from its beginning to the step that is shown, and records that.
 *
 * @param progress - hears the share that is done.
 * @returns the clip, whose type says how it is coded.
 */
export async function recordClip(
  stage: Stage,
  kind: string,
  progress: (share: number) => void,
): Promise<Blob> {
  const end = stage.moment!.at;
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH;
  canvas.height = HEIGHT;
  const context = canvas.getContext("2d")!;
  const recorder = new MediaRecorder(canvas.captureStream(RATE), {
    mimeType: kind,
    videoBitsPerSecond: BITS,
  });
  const parts: Blob[] = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const stopped = new Promise((done) => recorder.addEventListener("stop", done));
  progress(0);
  await toBeginning(stage);
  draw(context, stage.moment);
  recorder.start();
  const began = performance.now();
  await new Promise<void>((done) => {
    const frame = () => {
      const seconds = (performance.now() - began) / 1000;
      stage.goTo(stepAt(end, seconds / (SECONDS - STILL)));
      draw(context, stage.moment);
      progress(Math.min(1, seconds / SECONDS));
      if (seconds < SECONDS) setTimeout(() => requestAnimationFrame(frame), 500 / RATE);
      else done();
    };
    frame();
  });
  recorder.stop();
  await stopped;
  return new Blob(parts, { type: kind.split(";")[0]! });
}

const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

/** Goes to the beginning, and waits until that is woven: the clip would begin with what was shown before. */
async function toBeginning(stage: Stage): Promise<void> {
  stage.goTo(0);
  const late = performance.now() + PATIENCE;
  const woven = () => stage.moment?.snapshot === stage.moment?.track.snapshots[0];
  while (!woven() && performance.now() < late) await pause(1000 / RATE);
  await pause(GLIDES);
}

function draw(context: CanvasRenderingContext2D, moment: Moment | undefined): void {
  if (moment) drawPicture(context, moment);
}
