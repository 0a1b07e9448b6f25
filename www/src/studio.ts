import {
  ByteTokenizer,
  Dataset,
  Model,
  Runtime,
  type StepMetrics,
  TinyloomError,
  Trainer,
} from "tinyloom";
import { grammarEntropy } from "../stories/entropy.ts";
import { StoryJudge } from "../stories/score.ts";
import { presetFor } from "./presets.ts";
import type {
  Failure,
  GenerateRequest,
  Opened,
  Prepared,
  StartOptions,
  StudioEvent,
  TextChoice,
  TrainEnd,
} from "./protocol.ts";
import { ByteStream, sampleText, sampleTokens } from "./sample.ts";
import {
  defaultPrompt,
  type RunSettings,
  resolveSettings,
  storiesFor,
  validationFraction,
} from "./settings.ts";
import { pack, unpack } from "./tar.ts";

/** How often in a run the validation loss is taken and a sample is made. */
const EVALUATIONS = 25;
const SAMPLES = 10;
const SAMPLE_LENGTH = 140;
/** The part of the validation split that the curve uses, in steps' worth of tokens. */
const PROBE_STEPS = 4;
/** What this page adds to a checkpoint. */
const DEMO_FILE = "tinyloom-demo.json";

/** One model in training with its data. */
interface Run {
  settings: RunSettings;
  model: Model;
  trainer: Trainer;
  dataset: Dataset;
  probe: Dataset;
  trainBytes: number;
  judge: StoryJudge | undefined;
  step: number;
}

/** What this page reads of a saved trainer's state. */
interface SavedState {
  progress: { step: number };
}

/** Runs `work` and turns what it throws into plain data that crosses to the page whole. */
async function guard<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const code = error instanceof TinyloomError ? error.code : "internal";
    const message = error instanceof Error ? error.message : String(error);
    throw { code, message } satisfies Failure;
  }
}

/** Everything that touches the GPU; it lives in a worker, so that training never holds up the page. */
export class Studio {
  #runtime: Runtime | undefined;
  #run: Run | undefined;
  #halt = false;
  #generation: AbortController | undefined;
  #emit: (event: StudioEvent) => void = () => {};

  open(emit: (event: StudioEvent) => void): Promise<Opened> {
    return guard(async () => {
      this.#emit = emit;
      const runtime = await Runtime.create();
      this.#runtime = runtime;
      void runtime.lost.then(({ reason, message }) => emit({ type: "lost", reason, message }));
      return { capabilities: runtime.capabilities, preset: presetFor(runtime.capabilities) };
    });
  }

  /** Makes a model and its trainer; the run before is freed. */
  start(options: StartOptions): Promise<Prepared> {
    return guard(async () => {
      const runtime = this.#opened();
      const settings = resolveSettings(options, runtime.capabilities);
      if (!settings)
        throw new TinyloomError("invalid-options", `there is no size "${options.config}"`);
      const data = await loadText(options.text, settings);
      this.#free();
      const { config, seed, tokensPerStep, learningRate, minLearningRate, steps } = settings;
      const model = await Model.create(runtime, config, { seed });
      const trainer = await Trainer.create(model, {
        tokensPerStep,
        learningRate,
        totalSteps: steps,
        seed,
        ...(minLearningRate !== undefined && { minLearningRate }),
      }).catch((error: unknown) => {
        model.free();
        throw error;
      });
      this.#run = { settings, model, trainer, step: 0, ...data };
      return this.#prepared(this.#run);
    });
  }

  /** Trains until the planned steps are done or `halt` is called. */
  train(): Promise<TrainEnd> {
    return guard(async () => {
      const run = this.#current();
      this.#halt = false;
      const { steps } = run.settings;
      if (run.step >= steps) return { finished: true, step: run.step };
      const speed = new Speed();
      for await (const metrics of run.trainer.run(run.dataset, {
        steps: steps - run.step,
        dataChanged: true, // the text in the page may be another than that of a loaded run
      })) {
        run.step = metrics.step;
        const { step, loss, skipped } = metrics;
        this.#emit({ type: "step", step, loss, skipped, tokensPerSecond: speed.add(metrics) });
        await this.#observe(run);
        if (this.#halt) break;
      }
      return { finished: run.step >= steps, step: run.step };
    });
  }

  /** Ends `train` after the current step. */
  halt(): void {
    this.#halt = true;
  }

  /** Continues a prompt, handing over the text as it is decoded; `cancelGenerate` ends it early. */
  generate(request: GenerateRequest, onText: (text: string) => void): Promise<void> {
    return guard(async () => {
      const { model, settings } = this.#current();
      const { maxTokens, temperature, seed } = request;
      this.#generation = new AbortController();
      const { signal } = this.#generation;
      const prompt = new ByteTokenizer().encode(request.prompt === "" ? "\n" : request.prompt);
      const stream = new ByteStream();
      const options = {
        length: maxTokens,
        context: settings.sequenceLength,
        temperature,
        seed,
        signal,
      };
      try {
        for await (const token of sampleTokens(model, prompt, options)) onText(stream.push(token));
      } catch (error) {
        if (!(error instanceof TinyloomError && error.code === "aborted")) throw error;
      }
      onText(stream.end());
    });
  }

  cancelGenerate(): void {
    this.#generation?.abort();
  }

  /** The checkpoint as a tar archive. */
  save(): Promise<Blob> {
    return guard(async () => {
      const { trainer, settings } = this.#current();
      const demo = new TextEncoder().encode(JSON.stringify(settings, null, 2));
      return pack({ ...(await trainer.save()), [DEMO_FILE]: demo });
    });
  }

  /** Goes on from a saved archive, on the text chosen in the page. */
  load(archive: Blob, text: TextChoice): Promise<Prepared> {
    return guard(async () => {
      const runtime = this.#opened();
      const { [DEMO_FILE]: demo, ...files } = await unpack(archive);
      if (!demo) {
        throw new TinyloomError(
          "invalid-checkpoint",
          `the archive has no ${DEMO_FILE}; load one saved by this page`,
        );
      }
      const settings = JSON.parse(await demo.text()) as RunSettings;
      const data = await loadText(text, settings);
      const trainer = await Trainer.resume(runtime, files);
      this.#free();
      const { progress } = JSON.parse(await files["trainer_state.json"]!.text()) as SavedState;
      this.#run = { settings, model: trainer.model, trainer, step: progress.step, ...data };
      return this.#prepared(this.#run);
    });
  }

  #opened(): Runtime {
    if (!this.#runtime) throw new TinyloomError("webgpu-unavailable", "no GPU device is open");
    return this.#runtime;
  }

  #current(): Run {
    if (!this.#run)
      throw new TinyloomError("invalid-options", "there is no model yet; start a run first");
    return this.#run;
  }

  #prepared({ settings, step, model, trainer, trainBytes, judge }: Run): Prepared {
    return {
      settings,
      step,
      parameterCount: model.parameterCount,
      gpuBytes: model.gpuBytes,
      trainBytes,
      plan: trainer.plan(),
      ...(judge && { entropy: grammarEntropy().natsPerByte }),
    };
  }

  /** The validation loss and the sample that are due after a step. */
  async #observe(run: Run): Promise<void> {
    const { step, settings, trainer, probe, model, judge } = run;
    const { steps, sequenceLength, temperature, seed } = settings;
    const due = (times: number): boolean =>
      step === steps || step % Math.max(1, Math.floor(steps / times)) === 0;
    if (due(EVALUATIONS)) {
      const { loss } = await trainer.evaluate(probe);
      this.#emit({ type: "validation", step, loss });
    }
    if (due(SAMPLES)) {
      const prompt = new ByteTokenizer().encode(defaultPrompt(judge !== undefined));
      const options = {
        length: SAMPLE_LENGTH,
        context: sequenceLength,
        temperature,
        seed: seed + step,
      };
      const text = await sampleText(model, prompt, options);
      const pieces = judge?.judge(text, true) ?? [{ text }];
      this.#emit({ type: "sample", step, pieces });
    }
  }

  #free(): void {
    this.#generation?.abort();
    this.#run?.model.free();
    this.#run?.dataset.free();
    this.#run?.probe.free();
    this.#run = undefined;
  }
}

/** Tokens per second over the last steps, without the time of evaluations and samples. */
class Speed {
  #tokens = 0;
  #milliseconds = 0;

  add({ tokens, milliseconds }: StepMetrics): number {
    // The past fades by a tenth each step, and the first step (it compiles) is soon forgotten.
    this.#tokens = this.#tokens * 0.9 + tokens;
    this.#milliseconds = this.#milliseconds * 0.9 + milliseconds;
    return (this.#tokens * 1000) / this.#milliseconds;
  }
}

/** The chosen text as datasets: one to train on, and the last part of its validation split for the curve. */
async function loadText(choice: TextChoice, settings: RunSettings) {
  const { sequenceLength, tokensPerStep, seed } = settings;
  const tokenizer = new ByteTokenizer();
  const text = choice.kind === "stories" ? storiesFor(settings) : undefined;
  const tokens =
    choice.kind === "file"
      ? tokenizer.encode(new Uint8Array(await choice.file.arrayBuffer()))
      : tokenizer.encode(text ?? (choice.kind === "paste" ? choice.text : ""));
  const least = Math.ceil((sequenceLength + 1) / validationFraction);
  if (tokens.length < least) {
    throw new TinyloomError(
      "invalid-options",
      `the text has ${tokens.length} bytes; sequences of ${sequenceLength} need at least ${least}: ` +
        "give more text or a smaller sequence length",
    );
  }
  const split = Math.floor(tokens.length * validationFraction);
  const kept = Math.min(split, Math.max(PROBE_STEPS * tokensPerStep, sequenceLength + 1));
  return {
    dataset: Dataset.fromTokens(tokens, { sequenceLength, validationFraction, seed }),
    probe: Dataset.fromTokens(tokens.subarray(-2 * kept), {
      sequenceLength,
      validationFraction: 0.5,
      seed,
    }),
    trainBytes: tokens.length - split,
    judge: text === undefined ? undefined : new StoryJudge(text),
  };
}
