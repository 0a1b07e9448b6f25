/**
 * Trains and decodes small transformer language models on WebGPU. Importing this module touches
 * neither the GPU nor the network; the wasm module loads on the first `Runtime.create` or `estimate`.
 *
 * @module tinyloom
 */

export { Adapter } from "./adapter.js";
export type {
  AdapterFiles,
  AdapterOptions,
  LoadAdapterOptions,
  MergeOptions,
  ResolvedAdapterOptions,
  WeightedAdapter,
} from "./adapter-types.js";
export type { Only, With } from "./asked.js";
export type {
  AttributeOptions,
  ByLayer,
  Captured,
  CaptureKinds,
  CaptureOptions,
  LensLayer,
  LensOptions,
} from "./capture-types.js";
export { type ChatOptions, chat } from "./chat.js";
export type { LayerFields } from "./config-fields.js";
export { Dataset } from "./dataset.js";
export type { DatasetOptions, TextOptions } from "./dataset-types.js";
export { type ErrorCode, TinyloomError } from "./error.js";
export {
  type Estimate,
  type EstimateOptions,
  estimate,
  type StepEstimate,
  type TextEstimate,
  type Timed,
  type TokenEstimate,
} from "./estimate.js";
export type {
  CheckpointFiles,
  CheckpointSource,
  FileContent,
  PickedFiles,
} from "./file-part.js";
export type { ElementType, KvCache, WeightFormat } from "./formats.js";
export type {
  BatchGeneration,
  BatchOptions,
  BatchPrompt,
  BatchToken,
  GeneratedToken,
  GenerateOptions,
  Generation,
  TokenBias,
  TokenChoice,
} from "./generate-types.js";
export type {
  Intervened,
  Intervention,
  InterventionChange,
  InterventionPlace,
  Vector,
} from "./interventions-types.js";
export { Model } from "./model.js";
export type { ModelConfig } from "./model-config.js";
export type {
  EmbedOptions,
  GgufFiles,
  HiddenStatesOptions,
  InferenceOptions,
  LogitsOptions,
  ModelAttentionOptions,
  ModelFiles,
  ModelOptions,
  PretrainedOptions,
  ScoreOptions,
  Scores,
} from "./model-types.js";
export type { Dtype } from "./notes.js";
export type { OptimizerNumbers, OptimizerOptions } from "./optimizers.js";
export type { PreparedText, PrepareOptions } from "./prepare-types.js";
export type { LoadOptions, LongOptions, Progress } from "./progress.js";
export { readConfig } from "./read-config.js";
export type { RecoverOptions, RecoveryState, RepeatedStep } from "./recovery/types.js";
export type { ResolvedConfig } from "./resolved-config.js";
export type { RopeParameters } from "./rope-parameters.js";
export type { RunOptions } from "./run-types.js";
export { Runtime } from "./runtime.js";
export type { Capabilities, FeatureOptions, LostInfo, RuntimeOptions } from "./runtime-types.js";
export type {
  DtypeOptions,
  GgufOptions,
  ModelSaveOptions,
  RunHandle,
  SaveOptions,
  SaveTarget,
  TrainerSaveOptions,
} from "./save-types.js";
export { Tensor, type TensorData, type TensorOptions } from "./tensor.js";
export type { TextSource } from "./text/read.js";
export type {
  ChatPrompt,
  Conversation,
  ConversationOptions,
  DatasetDocument,
  DatasetFiles,
  DocumentOptions,
  Message,
  PromptedDocument,
  SourceOptions,
  TemplateOptions,
  TokenizerFiles,
  TokenizerOptions,
  TrainOptions,
} from "./text/types.js";
export {
  BpeTokenizer,
  ByteTokenizer,
  chatPrompt,
  type PretrainedTokenizer,
  Tokenizer,
} from "./tokenizer.js";
export type {
  DecodeOptions,
  EncodeOptions,
  SpecialToken,
  SpecialTokens,
  TextDecoding,
  TextEncoding,
  TokenDecoder,
} from "./tokenizer-types.js";
export { IGNORE_INDEX, type TokenIds } from "./tokens.js";
export { Trainer } from "./trainer.js";
export type {
  Batch,
  CheckpointOptions,
  DropoutRates,
  EvaluateOptions,
  Evaluation,
  GradientBatch,
  GradientRows,
  Phase,
  PlanBinding,
  PlanRow,
  ProfileRow,
  RateOptions,
  RatePoint,
  RateSearch,
  Recovered,
  ResolvedTrainerOptions,
  Schedule,
  SoftTargets,
  StateGradientBatch,
  StateRows,
  StepGradient,
  StepMetrics,
  TrainerFiles,
  TrainerOptions,
} from "./trainer-types.js";
