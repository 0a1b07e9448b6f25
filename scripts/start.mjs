// `npm start`: serves the demo page; with --headless it runs the main job and prints a sample.
import { join } from "node:path";
import { parseCommand } from "./args.mjs";
import { main, root, step } from "./lib.mjs";

await main(async () => {
  const command = parseCommand(process.argv.slice(2));
  if (command.help) return console.log(command.help);
  const { setup } = await import("./setup.mjs");
  await setup({ browsers: command.headless ? [command.browser] : [] });
  const { build } = await import("./build.mjs");
  const inNode = command.headless && command.browser === "node";
  await build({ page: !inNode, job: inNode });
  if (command.headless) {
    const { headless } = await import("./headless.mjs");
    await headless(command);
  } else {
    await page(command);
  }
});

async function page({ port, portGiven }) {
  const { serve } = await import("./server.mjs");
  const mounts = { "/": join(root, "www", "dist") };
  const { url } = await serve(mounts, { port, fallbackToAny: !portGiven });
  step("the demo page is served at the address below; Ctrl-C ends it");
  console.log(url);
}
