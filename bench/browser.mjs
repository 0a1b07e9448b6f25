// Launches the browser for a benchmark: the project's own, with exact timestamps.
import { launch as launchBrowser } from "../scripts/browser.mjs";

/** Chromium rounds GPU timestamps to 100 µs unless told not to. */
const EXACT = ["--disable-dawn-features=timestamp_quantization"];

export const launch = (kind) => launchBrowser(kind, { flags: EXACT });
