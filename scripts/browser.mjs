// Launches a headless browser with WebGPU, kept off the network.
import puppeteer from "puppeteer-core";
import { Failure } from "./lib.mjs";
import { browserVariable, findBrowser, softwareOnly } from "./machine.mjs";

/** Chromium's flags that keep it from calling home. */
const QUIET = [
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-default-apps",
  "--disable-quic",
  "--no-first-run",
];

/** Those that keep pages in the background as quick as others; puppeteer gives them too. */
const AWAKE = [
  "--disable-background-timer-throttling",
  "--disable-renderer-backgrounding",
  "--disable-backgrounding-occluded-windows",
];

/** Flags that choose the adapter. CHROME_GPU_FLAGS, where set, replaces them. */
function gpuFlags() {
  if (process.env.CHROME_GPU_FLAGS !== undefined) {
    return process.env.CHROME_GPU_FLAGS.split(/\s+/).filter(Boolean);
  }
  if (softwareOnly()) return ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];
  return process.platform === "linux"
    ? ["--enable-unsafe-webgpu", "--enable-features=Vulkan", "--ignore-gpu-blocklist"]
    : ["--enable-unsafe-webgpu", "--ignore-gpu-blocklist"];
}

/** Milliseconds in which a browser has to close. */
const CLOSING = 30_000;

function chromiumOptions(more, throttled) {
  const asRoot = process.platform === "linux" && process.getuid() === 0;
  return {
    browser: "chrome",
    args: [
      ...gpuFlags(),
      ...QUIET,
      ...(throttled ? [] : AWAKE),
      ...more,
      ...(asRoot ? ["--no-sandbox"] : []),
    ],
    ...(throttled && { ignoreDefaultArgs: AWAKE }),
  };
}

function firefoxOptions() {
  return {
    browser: "firefox",
    extraPrefsFirefox: {
      "dom.webgpu.enabled": true,
      "gfx.webgpu.ignore-blocklist": true,
      "dom.webgpu.workers.enabled": true,
      "dom.min_background_timeout_value": 4,
      "app.update.enabled": false,
      "network.captive-portal-service.enabled": false,
      "network.connectivity-service.enabled": false,
      "datareporting.policy.dataSubmissionEnabled": false,
      "browser.safebrowsing.update.enabled": false,
      "services.settings.server": "data:,",
    },
  };
}

/**
 * Opens a headless browser of a kind, "chromium" or "firefox". A step may take seconds on a software
 * adapter, so that no protocol call has a time limit by default.
 *
 * @param options - `flags`: more flags of Chromium's; `extensions`: whether unpacked extensions can be
 *   installed; `ends`: whether the browser ends by itself when this process is asked to (default). With
 *   false the caller closes it. `throttled`: whether pages in the background are slowed down, as in a
 *   user's browser. `seconds`: in which each protocol call has to end, such as a function that a page
 *   evaluates; 0 is no limit.
 */
export async function launch(
  kind,
  { flags = [], extensions = false, ends = true, throttled = false, seconds = 0 } = {},
) {
  const executablePath = findBrowser(kind);
  if (!executablePath) {
    throw new Failure(`no ${kind} was found; install it or set ${browserVariable(kind)}`);
  }
  const options = kind === "firefox" ? firefoxOptions() : chromiumOptions(flags, throttled);
  try {
    const browser = await puppeteer.launch({
      ...options,
      ...(extensions ? { enableExtensions: true, pipe: true } : {}),
      executablePath,
      // Chromium's build for servers knows no other way to run.
      headless: /headless[-_]shell/.test(executablePath) ? "shell" : true,
      protocolTimeout: seconds * 1000,
      timeout: 120_000,
      handleSIGINT: ends,
      handleSIGTERM: ends,
      handleSIGHUP: ends,
    });
    return closable(browser);
  } catch (error) {
    throw new Failure(`${executablePath} could not be started: ${error.message}`);
  }
}

/** The browser, whose `close()` always settles: a browser that does not answer is killed. */
function closable(browser) {
  const close = browser.close.bind(browser);
  browser.close = async () => {
    let killed = false;
    const timer = setTimeout(() => {
      killed = browser.process()?.kill("SIGKILL") ?? false;
    }, CLOSING);
    try {
      await close();
    } catch (error) {
      if (!killed) throw error; // its connection ended with it
    } finally {
      clearTimeout(timer);
    }
  };
  return browser;
}

/**
 * A page of the browser at that address.
 *
 * @param onConsole - called with (type, text) of each console message; errors of the page come as
 *   type "error".
 */
export async function openPage(browser, url, onConsole = () => {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(0);
  page.on("console", (message) => onConsole(message.type(), message.text()));
  page.on("pageerror", (error) => onConsole("error", String(error?.stack ?? error)));
  await page.goto(url, { waitUntil: "load" });
  return page;
}
