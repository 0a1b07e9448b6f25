/** The files of a tokenizer: they are read, checked, and written as they were. */

import type { Source } from "../file-part.js";
import { corrupt } from "../file-part.js";
import { jsonIn } from "../json-file.js";
import { checkedJson } from "./checked.js";
import {
  chatTemplatesOf,
  type Fields,
  type InfoFiles,
  specialTokensOf,
  type TokenizerInfo,
} from "./tokenizer-info.js";
import type { TokenizerJson } from "./tokenizer-json.js";
import type { TokenizerFiles } from "./types.js";
import { fromVocabulary } from "./vocabulary-files.js";

/** Bytes of a tokenizer's file at most: those of a quarter of a million tokens take about forty million. */
const MOST = 128 << 20;
/** Where transformers keeps further templates. */
const FURTHER = /^additional_chat_templates\/([^/]+)\.jinja$/;

/** A tokenizer's files, read and checked. */
export interface ReadFiles {
  readonly json: TokenizerJson;
  readonly info: TokenizerInfo;
  /** The file that the tokenizer is of, for messages. */
  readonly place: string;
}

export async function readFiles(from: Source): Promise<ReadFiles> {
  const own = await optional(from, "tokenizer.json");
  const configText = await optional(from, "tokenizer_config.json");
  const tokenizerConfig =
    configText === undefined ? {} : parsed(from, "tokenizer_config.json", configText);
  const made =
    own === undefined ? await fromVocabulary(from, tokenizerConfig, optional) : undefined;
  const place = from.place(made ? "vocab.json" : "tokenizer.json");
  const raw = made ?? parsed(from, "tokenizer.json", own as string);
  const json = checkedJson(place, raw);
  const mapText = await silent(from, "special_tokens_map.json", tokenizerConfig["eos_token"]);
  const specialTokensMap =
    mapText === undefined ? {} : parsed(from, "special_tokens_map.json", mapText);
  const end = tokenizerConfig["eos_token"] ?? specialTokensMap["eos_token"];
  const modelText = await silent(from, "config.json", end);
  const modelConfig = modelText === undefined ? {} : parsed(from, "config.json", modelText);
  const { templates, processor } = await readTemplates(from, tokenizerConfig);
  const processorTemplates =
    processor === undefined ? {} : parsed(from, "chat_template.json", processor);
  const info = { tokenizerConfig, specialTokensMap, modelConfig, templates, processorTemplates };
  const texts = {
    "tokenizer.json": own ?? JSON.stringify(raw),
    "tokenizer_config.json": configText,
    "special_tokens_map.json": mapText,
    "chat_template.jinja": templates["default"],
    "chat_template.json": processor,
  };
  return { json, info: infoOf(json, info, texts), place };
}

/** A file that is asked for only where nothing else has said this. */
async function silent(from: Source, name: string, said: unknown): Promise<string | undefined> {
  return said === undefined ? optional(from, name) : undefined;
}

async function readTemplates(from: Source, config: Fields) {
  const templates: { [name: string]: string } = {};
  const main = await optional(from, "chat_template.jinja");
  if (main !== undefined) templates["default"] = main;
  for (const file of from.names?.() ?? []) {
    const name = FURTHER.exec(file)?.[1];
    const text = name === undefined ? undefined : await optional(from, file);
    if (text !== undefined) templates[name as string] = text;
  }
  const none = Object.keys(templates).length === 0 && config["chat_template"] === undefined;
  const processor = none ? await optional(from, "chat_template.json") : undefined;
  return { templates, processor };
}

interface Texts {
  readonly "tokenizer.json": string;
  readonly [name: string]: string | undefined;
}

function infoOf(json: TokenizerJson, files: InfoFiles, texts: Texts): TokenizerInfo {
  const specialTokens = specialTokensOf(json, files);
  const chatTemplates = chatTemplatesOf(files);
  const chatTemplate = Object.hasOwn(chatTemplates, "default")
    ? chatTemplates["default"]
    : undefined;
  const written: { [name: string]: string | undefined } = { ...texts };
  const config: { [name: string]: unknown } = { ...files.tokenizerConfig };
  let changed = false;
  // What was said by files that are not the tokenizer's has to be in those that are saved.
  for (const [name, token] of Object.entries(specialTokens)) {
    const said = [files.tokenizerConfig, files.specialTokensMap].map(
      (file) => file[`${name}_token`],
    );
    if (said.some((one) => one !== undefined)) continue;
    config[`${name}_token`] = token?.text;
    changed = true;
  }
  if (Object.keys(files.templates).some((name) => name !== "default")) {
    config["chat_template"] = Object.entries(chatTemplates).map(([name, template]) => ({
      name,
      template,
    }));
    written["chat_template.jinja"] = undefined;
    changed = true;
  }
  if (changed) written["tokenizer_config.json"] = `${JSON.stringify(config, null, 2)}\n`;
  const given = Object.entries(written).filter(([, text]) => text !== undefined);
  const bytes = given.map(([name, text]) => [name, new TextEncoder().encode(text)]);
  return {
    files: Object.fromEntries(bytes) as TokenizerFiles,
    endToken: specialTokens.eos?.id,
    specialTokens,
    chatTemplate,
    chatTemplates,
  };
}

/** The text of a file that need not be there. Its byte-order mark, which some editors write, is no part of it. */
async function optional(from: Source, name: string): Promise<string | undefined> {
  const bytes = await optionalBytes(from, name);
  return bytes && new TextDecoder().decode(bytes);
}

/** The bytes of a file that need not be there. */
export async function optionalBytes(
  from: Source,
  name: string,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const file = await from.find(name, MOST);
  if (!file) return undefined;
  if (file.size > MOST) {
    file.rest?.();
    throw corrupt(
      `${file.place} has ${file.size} bytes, and at most ${MOST} are read; this is another file`,
    );
  }
  const bytes = Uint8Array.from(await file.read(0, file.size));
  file.rest?.();
  return bytes;
}

function parsed(from: Source, name: string, text: string): Fields {
  const value = jsonIn(from.place(name), text, "invalid-checkpoint");
  if (typeof value === "object" && value !== null) return value as Fields;
  throw corrupt(`${from.place(name)} is no JSON object`);
}
