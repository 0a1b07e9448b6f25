// Launches the browser for a benchmark: the project's own launcher, or the one that the environment
// names with CHROME_PATH and CHROME_GPU_FLAGS on a machine where nothing is installed.
import { existsSync } from "node:fs";
import puppeteer from "puppeteer-core";

export async function launch(kind) {
  const path = process.env.CHROME_PATH;
  if (kind !== "chromium" || !path || !existsSync(path)) {
    return (await import("../scripts/browser.mjs")).launch(kind);
  }
  const flags = (process.env.CHROME_GPU_FLAGS ?? "").split(/\s+/).filter(Boolean);
  const more = [
    "--disable-dawn-features=timestamp_quantization",
    "--disable-background-networking",
    "--no-first-run",
  ];
  return puppeteer.launch({
    executablePath: path,
    headless: "shell",
    args: [...flags, ...more],
    protocolTimeout: 0,
  });
}
