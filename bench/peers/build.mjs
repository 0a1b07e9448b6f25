// Installs the peers as locked and bundles each with its adapter into bench/peers/dist, so that
// measuring them needs neither an install nor the network.
import { join } from "node:path";
import { filesBelow, fingerprint, main, root, run, step, unlessDone } from "../../scripts/lib.mjs";
import { setup } from "../../scripts/setup.mjs";
import { BUNDLED } from "../peers.mjs";

const folder = join(root, "bench", "peers");
const from = (path) => `bench/peers/${path}`;

await main(async () => {
  await setup({ rust: false });
  const locked = fingerprint([from("package.json"), from("package-lock.json")]);
  await unlessDone("peers-npm", locked, [from("node_modules")], async () => {
    step("installing the peers");
    const args = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
    await run("npm", args, { cwd: folder });
  });
  const inputs = fingerprint(["package-lock.json", ...filesBelow(["bench/peers"])]);
  const outputs = BUNDLED.map((peer) => from(`dist/${peer}.js`));
  await unlessDone("peers", inputs, outputs, async () => {
    step("bundling the peers");
    const vite = await import("vite");
    await vite.build({
      configFile: false,
      logLevel: "warn",
      root: folder,
      build: {
        outDir: "dist",
        target: "es2022",
        lib: {
          entry: Object.fromEntries(BUNDLED.map((peer) => [peer, join(folder, `${peer}.mjs`)])),
          formats: ["es"],
          fileName: (_, peer) => `${peer}.js`,
        },
      },
    });
  });
});
