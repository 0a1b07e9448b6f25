// What this machine has: browsers, GPU drivers. Looks only; changes nothing.
import { existsSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { which } from "./lib.mjs";

const programs = [
  process.env.PROGRAMFILES,
  process.env["PROGRAMFILES(X86)"],
  process.env.LOCALAPPDATA,
];

const onWindows = (...paths) =>
  programs.filter(Boolean).flatMap((folder) => paths.map((path) => join(folder, path)));

const onMac = (...names) =>
  ["/Applications", join(process.env.HOME ?? "", "Applications")].flatMap((folder) =>
    names.map((name) => join(folder, `${name}.app`, "Contents/MacOS", name)),
  );

/** Where each kind of browser is looked for, in this order. */
const places = {
  chromium: {
    variable: "CHROME_PATH",
    commands: [
      "chromium",
      "chromium-browser",
      "google-chrome-stable",
      "google-chrome",
      "microsoft-edge",
    ],
    mac: onMac("Google Chrome", "Chromium", "Microsoft Edge"),
    windows: onWindows(
      "Google/Chrome/Application/chrome.exe",
      "Microsoft/Edge/Application/msedge.exe",
    ),
  },
  firefox: {
    variable: "FIREFOX_PATH",
    commands: ["firefox-esr", "firefox"],
    mac: ["/Applications/Firefox.app/Contents/MacOS/firefox"],
    windows: onWindows("Mozilla Firefox/firefox.exe"),
  },
};

/** Path of an installed browser of that kind, or undefined. The variable, where set, decides. */
export function findBrowser(kind) {
  const { variable, commands, mac, windows } = places[kind];
  if (process.env[variable]) return process.env[variable];
  if (process.platform === "darwin") return mac.find(existsSync);
  if (process.platform === "win32") return windows.find(existsSync);
  return commands.map(which).find(Boolean);
}

/** The environment variable that names a browser of that kind. */
export const browserVariable = (kind) => places[kind].variable;

/** Whether to compute on the CPU: in CI, and on a Linux machine without a GPU's device file. */
export function softwareOnly() {
  if (process.env.CI) return true;
  if (process.platform !== "linux") return false;
  const nodes = (folder, pattern) =>
    existsSync(folder) && readdirSync(folder).some((name) => pattern.test(name));
  return !nodes("/dev/dri", /^renderD/) && !nodes("/dev", /^(nvidia\d|dxg$)/);
}

/** Vulkan's description of mesa's software driver (lavapipe), or undefined. */
export function lavapipe() {
  for (const folder of [
    "/usr/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
  ]) {
    const name =
      existsSync(folder) && readdirSync(folder).find((file) => /^lvp_icd.*\.json$/.test(file));
    if (name) return join(folder, name);
  }
  return undefined;
}

/** Vulkan's description of SwiftShader, which Chromium brings, or undefined. */
export function swiftshader() {
  const chromium = findBrowser("chromium");
  const folders = [
    "/usr/lib/chromium",
    "/usr/lib/chromium-browser",
    "/opt/google/chrome",
    "/opt/microsoft/msedge",
  ];
  if (chromium) folders.unshift(dirname(chromium));
  return folders.map((folder) => join(folder, "vk_swiftshader_icd.json")).find(existsSync);
}

/** Environment for a process that uses Vulkan through `icd`, unless the caller chose a driver. */
export function vulkanEnv(icd) {
  const chosen = process.env.VK_ICD_FILENAMES ?? process.env.VK_DRIVER_FILES;
  return chosen || !icd ? {} : { VK_ICD_FILENAMES: icd, VK_DRIVER_FILES: icd };
}

/** Vulkan's loader and lavapipe complain where XDG_RUNTIME_DIR is unset. */
const runtimeFolder = () =>
  process.platform === "linux" ? { XDG_RUNTIME_DIR: process.env.XDG_RUNTIME_DIR ?? tmpdir() } : {};

/** Environment for Dawn in Node: Debian 12's lavapipe gives it no adapter, SwiftShader does. */
export const dawnEnv = () => ({
  ...(softwareOnly() ? vulkanEnv(swiftshader()) : {}),
  ...runtimeFolder(),
});

/**
 * Environment for native wgpu without a GPU. lavapipe leaves LLVM's passes out, which cost more than they bring to
 * what runs once (`docs/decisions/057-compiling-the-tests.md`).
 */
export const nativeEnv = () =>
  softwareOnly() ? { GALLIVM_PERF: "nopt", ...vulkanEnv(lavapipe()), ...runtimeFolder() } : {};
