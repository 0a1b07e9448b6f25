// `npm test`: set-up, build, then every *.test.mjs under tests with Node's test runner. The native
// lane, `cargo test`, is one of them. Arguments select files: `npm test -- lanes` or `-- demo`.
// `npm run test:full` (`--full`): the kernel lanes alone, and Node's, each with every case of the
// products that the everyday cases sample.
import { exitCode, Failure, filesBelow, main, step, WITHOUT_TRANSFORMERS } from "./lib.mjs";

await main(async () => {
  const full = process.argv.includes("--full");
  const wanted = process.argv.slice(2).filter((word) => word !== "--full");
  const files = filesBelow([full ? "tests/lanes" : "tests"]).filter(
    (path) =>
      (path.endsWith(".test.mjs") || (full && path.endsWith(".full.mjs"))) &&
      (wanted.length === 0 || wanted.some((word) => path.includes(word))),
  );
  if (files.length === 0)
    throw new Failure(`no test file has ${wanted.join(" or ")} in its path`, 2);
  const { setup } = await import("./setup.mjs");
  await setup({ browsers: ["chromium", "firefox", "node"], native: true });
  const { build } = await import("./build.mjs");
  await build({ page: !full, job: !full, testing: true });
  const env = full ? { TINYLOOM_LEVEL: "full" } : {};
  // The kernel lanes mostly wait for a software adapter's compiler, which uses one core: two at a
  // time. The others hold step times and submits to account, one after the other.
  const lanes = files.filter((path) => path.includes("lanes"));
  const others = files.filter((path) => !path.includes("lanes"));
  for (const [group, concurrency] of [
    [lanes, 2],
    [others, 1],
  ]) {
    if (group.length === 0) continue;
    step(`testing: ${group.length} files, ${concurrency} at a time`);
    const flags = ["--test", `--test-concurrency=${concurrency}`, "--test-reporter=spec"];
    const code = await exitCode(process.execPath, [...flags, ...group], { env });
    if (code !== 0) process.exitCode = 1;
  }
  if (process.env[WITHOUT_TRANSFORMERS]) {
    step(
      `${WITHOUT_TRANSFORMERS} is set: without PyTorch, transformers did not read what was saved`,
    );
  }
});
