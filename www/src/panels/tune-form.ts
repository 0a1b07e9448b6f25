/** The choices of the fine-tune panel, and what they take. */
import type { WeightFormat } from "tinyloom/worker";
import { byId, bytes, duration, make, whole } from "../dom.ts";
import { kindsOf } from "../estimates.ts";
import { tableRow } from "../table.ts";
import type { BaseModel } from "../tune/base-model.ts";
import type { TuneCost, TuneSettings } from "../tune/cost.ts";

const input = (id: string) => byId(`tune-${id}`, HTMLInputElement);
const select = (id: string) => byId(`tune-${id}`, HTMLSelectElement);

/** Modules of attention alone, as each model family calls them. */
const ATTENTION: readonly (readonly [family: RegExp, names: readonly string[]])[] = [
  [/^gpt2$/, ["attn.c_attn", "attn.c_proj"]],
  [/^gpt_neox$/, ["query_key_value", "attention.dense"]],
  [/^gpt_neo$/, ["q_proj", "k_proj", "v_proj", "out_proj"]],
  [/^phi3$/, ["qkv_proj", "o_proj"]],
  [/./, ["q_proj", "k_proj", "v_proj", "o_proj"]],
];

/** What a base that was trained on this page is fine-tuned with, and one of Hugging Face's. */
const OWN = { steps: 100, rate: 1e-2, tokens: 512 };
const OTHERS = { steps: 100, rate: 2e-4, tokens: 256 };

const TEMPLATES: { readonly [whose in BaseModel["templateOf"]]: string } = {
  model: "Its own chat template is used.",
  task: "A question becomes a problem of its task.",
  page: "It has no chat template, so the page writes “You:” and “It:” before the messages.",
};

/** Fills in what suits a base. */
export function suit(base: BaseModel, ofPage: boolean, longest: number): void {
  const { steps, rate, tokens } = ofPage ? OWN : OTHERS;
  input("steps").value = String(steps);
  input("rate").value = String(rate);
  fitTokens(longest, tokens);
  const { model_type: family = "llama", vocab_size: words = 0 } = base.config;
  byId("tune-base-note", HTMLElement).textContent =
    `${family}, ${whole(words)} tokens, sees ${whole(base.context)} at once. ${TEMPLATES[base.templateOf]}`;
}

/** Sets the tokens per step: as many as are wanted, and at least those of the longest chat. */
export function fitTokens(longest: number, wanted = input("tokens").valueAsNumber): void {
  const tokens = input("tokens");
  tokens.min = String(Math.max(8, longest));
  tokens.value = String(Math.max(wanted, longest));
}

/** What is chosen; undefined where a field has no number that it allows. */
export function chosen({ config }: BaseModel): TuneSettings | undefined {
  // Not by checkValidity: its events would have the form show the field while the visitor still types.
  if (byId("tune-form", HTMLFormElement).querySelector(":invalid")) return undefined;
  const family = config.model_type ?? "llama";
  const attention = ATTENTION.find(([known]) => known.test(family))![1];
  return {
    adapter: {
      rank: Number(select("rank").value),
      alpha: input("alpha").valueAsNumber,
      targets: select("targets").value === "attention" ? attention : "all-linear",
      seed: input("seed").valueAsNumber,
    },
    weights: select("weights").value as WeightFormat,
    steps: input("steps").valueAsNumber,
    learningRate: input("rate").valueAsNumber,
    tokensPerStep: input("tokens").valueAsNumber,
  };
}

/** Shows the cost, or why it is refused. */
export function showCost(cost: TuneCost | undefined, steps: number, present: number): void {
  const note = byId("tune-refused", HTMLElement);
  note.textContent = cost?.refused ?? "";
  note.hidden = !cost?.refused;
  const table = byId("tune-estimate", HTMLTableElement);
  const { estimate, seconds = Number.NaN } = cost ?? {};
  const sum = byId("tune-sum", HTMLElement);
  byId("tune-takes", HTMLElement).hidden = !estimate;
  table.dataset["bytes"] = String(estimate?.bytes.total ?? "");
  table.dataset["seconds"] = String(seconds);
  sum.textContent = "";
  if (!estimate) return;
  const time = Number.isFinite(seconds) ? duration(seconds) : undefined;
  const { total } = estimate.bytes;
  sum.textContent = `: ${bytes(total)}${time ? `, about ${time}` : ""}`;
  table.replaceChildren(
    make(
      "tbody",
      "",
      tableRow("weights of the model", whole(estimate.parameters)),
      tableRow("weights of the adapter", whole(estimate.trainable)),
      ...kindsOf(estimate.bytes).map(([kind, count]) => tableRow(`bytes: ${kind}`, bytes(count))),
      tableRow("bytes in all", bytes(total)),
      ...(present > 0 ? [tableRow("besides, the page’s own model", bytes(present))] : []),
      tableRow("predicted time", time ? `${time} for ${whole(steps)} steps` : "not known"),
    ),
  );
}
