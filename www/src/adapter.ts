import type { Capabilities } from "tinyloom";

/** The adapter in words. */
export function adapterName({ adapter, software }: Capabilities): string {
  const { vendor, architecture, device, description } = adapter;
  const known = [vendor, architecture, device, description].filter((part) => part !== "");
  if (known.length === 0) return software ? "unnamed, on the CPU" : "unnamed";
  return known.join(" ");
}
