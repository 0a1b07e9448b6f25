import { presets } from "./sizes.mjs";

export { defaultSeed, openSettings, presets } from "./sizes.mjs";

export type PresetName = keyof typeof presets;

export function isPresetName(name: string): name is PresetName {
  return Object.hasOwn(presets, name);
}

/** The size that fits an adapter: small where the CPU computes. */
export function presetFor(capabilities: { readonly software: boolean }): PresetName {
  return capabilities.software ? "story-small" : "story";
}
