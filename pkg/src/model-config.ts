/** A model's config, as the caller gives it. */

import type { ConfigFields } from "./config-fields.js";
import { isTinyloomError } from "./error.js";
import { CONFIG_BYTES } from "./file-part.js";
import { invalid, object, show } from "./options.js";

/**
 * A model's config, with the names of Hugging Face's `config.json`. What is left out defaults as in
 * transformers; what tinyloom does not compute is refused by name with code "invalid-config".
 */
export interface ModelConfig extends ConfigFields {
  [name: string]: unknown;
}

/** The config's JSON text; what JSON cannot hold is refused by name, since it would be left out. */
export function configJson(where: string, config: unknown): string {
  const refuse = (message: string, cause?: unknown) =>
    invalid(`${where}: ${message}`, "invalid-config", cause);
  const long = () =>
    refuse(
      `the config takes more than ${CONFIG_BYTES} bytes as JSON; take out the fields that are not the model's`,
    );
  // Counted as it is made: the text of what is far too large is never whole.
  let length = 0;
  const keep = (name: string, value: unknown) => {
    const type = typeof value;
    if (type === "number" ? !Number.isFinite(value) : /^(bigint|function|symbol)$/.test(type)) {
      throw refuse(`config field ${show(name)} is ${show(value)}; give what JSON can hold`);
    }
    length += name.length + (type === "string" ? (value as string).length : 1);
    if (length > CONFIG_BYTES) throw long();
    return value;
  };
  let json: string | undefined;
  try {
    if (object(config) !== undefined) {
      throw refuse(`give a plain config object, not ${show(config)}`);
    }
    json = JSON.stringify(config, keep);
  } catch (cause) {
    throw isTinyloomError(cause)
      ? cause
      : refuse(`the config cannot be made JSON (${show(cause)})`, cause);
  }
  if (json === undefined) throw refuse("the config's toJSON gives nothing");
  if (json.length > CONFIG_BYTES) throw long();
  return json;
}
