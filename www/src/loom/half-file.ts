import type { Model } from "tinyloom/worker";

/** A model's safetensors file in 16 bits, made in the worker; undefined where one of its weights is too large for them. */
export async function halfFile(model: Pick<Model, "save">): Promise<Uint8Array | undefined> {
  try {
    return (await model.save({ dtype: "f16" }))["model.safetensors"];
  } catch (error) {
    if ((error as { code?: unknown }).code === "invalid-options") return undefined;
    throw error;
  }
}
