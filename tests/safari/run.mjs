// `node tests/safari/run.mjs [BODY …]`: the bodies of the public API in Safari 26 or later, through safaridriver
// (`safaridriver --enable` once, as root). The package has to be built. `--driver chromedriver` takes Chromium's driver, and so
// tells whether this program works.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { commandLine, Failure, main, root, step, which } from "../../scripts/lib.mjs";
import { findBrowser } from "../../scripts/machine.mjs";
import { serve } from "../../scripts/server.mjs";
import { bodyNames } from "../api/bodies.mjs";

/** Milliseconds that one body may take. */
const PATIENCE = 1_800_000;

const BLANK = Buffer.from('<!doctype html><link rel="icon" href="data:,"><title>tinyloom</title>');

/** What each driver is asked for. Chromium's flags have WebGPU on a software adapter too. */
const CAPABILITIES = {
  safaridriver: () => ({ browserName: "safari" }),
  chromedriver: () => ({
    browserName: "chrome",
    "goog:chromeOptions": {
      binary: findBrowser("chromium"),
      args: [
        ...["--headless=new", "--no-sandbox", "--enable-unsafe-webgpu"],
        ...["--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"],
      ],
    },
  }),
};

/** Runs in the page: a body's results, or what it threw. */
const IN_PAGE = `const [base, body, done] = arguments;
(async () => {
  const tinyloom = await import(base + "/pkg/index.js");
  const ops = await import(base + "/pkg/ops.js");
  const internal = await import(base + "/pkg/internal.js");
  const { runBody } = await import(base + "/tests/api/bodies/run.mjs");
  return runBody({ ...tinyloom, ops, internal }, navigator.gpu, body);
})().then((results) => done({ results }), (error) => done({ error: String(error?.stack ?? error) }));`;

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** Sends a command of WebDriver. */
async function command(url, method, body) {
  const response = await fetch(url, {
    method,
    ...(body && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
  });
  const { value } = await response.json();
  if (value?.error) throw new Failure(`${value.error}: ${value.message}`);
  return value;
}

/** A started driver and a session in it: `post` sends a command to the session. */
async function opened(name) {
  const program = which(name);
  if (!program) throw new Failure(`${name} is missing`);
  const port = await freePort();
  const [flag] = name === "safaridriver" ? ["-p"] : ["--port"];
  const child = spawn(program, name === "safaridriver" ? [flag, port] : [`${flag}=${port}`], {
    stdio: "ignore",
  });
  const driver = `http://127.0.0.1:${port}`;
  const end = () => child.kill();
  process.on("exit", end);
  for (let turn = 0; ; turn++) {
    const ready = await command(`${driver}/status`, "GET").catch(() => undefined);
    if (ready) break;
    if (turn === 100) throw new Failure(`${name} does not answer`);
    await new Promise((done) => setTimeout(done, 100));
  }
  const capabilities = { alwaysMatch: CAPABILITIES[name]() };
  const { sessionId } = await command(`${driver}/session`, "POST", { capabilities });
  const session = `${driver}/session/${sessionId}`;
  const post = (path, body) => command(`${session}/${path}`, "POST", body);
  const close = async () => {
    await command(session, "DELETE");
    end();
  };
  return { post, close };
}

await main(async () => {
  const { values, positionals } = commandLine({
    options: { driver: { type: "string", default: "safaridriver" } },
    allowPositionals: true,
  });
  if (!CAPABILITIES[values.driver]) throw new Failure(`there is no driver ${values.driver}`, 2);
  const bodies = await bodyNames(false);
  const wrong = positionals.find((body) => !bodies.includes(body));
  if (wrong) throw new Failure(`there is no body ${wrong}; there is ${bodies.join(", ")}`, 2);
  if (!existsSync(join(root, "pkg/dist/tinyloom_bg.wasm")))
    throw new Failure("pkg/dist is missing: run npm run build");
  const server = await serve({
    "/blank.html": BLANK,
    "/tests": join(root, "tests"),
    "/pkg": join(root, "pkg", "dist"),
  });
  const { post, close } = await opened(values.driver);
  let [passed, failed] = [0, 0];
  try {
    await post("timeouts", { script: PATIENCE });
    await post("url", { url: `${server.url}/blank.html` });
    for (const body of positionals.length > 0 ? positionals : bodies) {
      step(body);
      const args = [server.url, body];
      const { results, error } = await post("execute/async", { script: IN_PAGE, args });
      if (error) {
        failed++;
        console.log(`FAILED ${body}: ${error}`);
        continue;
      }
      for (const { name, ok, detail, milliseconds } of results) {
        if (ok) passed++;
        else failed++;
        console.log(
          `${ok ? "ok" : "FAILED"} ${body}: ${name}, ${milliseconds} ms ${ok ? "" : detail}`,
        );
      }
    }
  } finally {
    await close();
    await server.close();
  }
  console.log(`${passed} passed, ${failed} failed`);
  if (failed > 0 || passed === 0) process.exitCode = 1;
});
