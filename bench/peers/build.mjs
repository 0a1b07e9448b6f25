// Installs the peers as locked and bundles each with its adapter into bench/peers/dist, so that
// measuring them needs neither an install nor the network.
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { filesBelow, fingerprint, main, root, run, step, unlessDone } from "../../scripts/lib.mjs";
import { setup } from "../../scripts/setup.mjs";
import { BUNDLED } from "../peers.mjs";
import { SERVING } from "../serving/rows.mjs";

const folder = join(root, "bench", "peers");
const from = (path) => `bench/peers/${path}`;
const PEERS = [...BUNDLED, ...SERVING];

/** Files that peers load by themselves. */
const LOADED = [
  "@wllama/wllama/esm/wasm/wllama.wasm",
  ...["mjs", "wasm"].map((type) => `onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.${type}`),
];
const distOf = (path) => `dist/${path.slice(path.lastIndexOf("/") + 1)}`;

await main(async () => {
  await setup({ rust: false });
  const locked = fingerprint([from("package.json"), from("package-lock.json")]);
  await unlessDone("peers-npm", locked, [from("node_modules")], async () => {
    step("installing the peers");
    // A script of onnxruntime-node, which nothing here uses, would fetch CUDA's libraries.
    const args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    await run("npm", args, { cwd: folder });
  });
  const inputs = fingerprint([
    "package-lock.json",
    ...filesBelow(["bench/peers", "bench/serving"]),
  ]);
  const outputs = [...PEERS.map((peer) => `dist/${peer}.js`), ...LOADED.map(distOf)].map(from);
  await unlessDone("peers", inputs, outputs, async () => {
    step("bundling the peers");
    const vite = await import("vite");
    await vite.build({
      configFile: false,
      logLevel: "warn",
      root: folder,
      // ONNX Runtime's wasm stays a file.
      resolve: { conditions: ["onnxruntime-web-use-extern-wasm", ...vite.defaultClientConditions] },
      build: {
        outDir: "dist",
        target: "es2022",
        lib: {
          entry: Object.fromEntries(PEERS.map((peer) => [peer, join(folder, `${peer}.mjs`)])),
          formats: ["es"],
          fileName: (_, peer) => `${peer}.js`,
        },
      },
    });
    for (const path of LOADED)
      copyFileSync(join(folder, "node_modules", path), join(folder, distOf(path)));
  });
});
