// `npm test`: set-up, build, then every *.test.mjs under tests with Node's test runner. The native
// lane, `cargo test`, is one of them. Arguments select files: `npm test -- lanes` or `-- demo`.
import { exitCode, Failure, filesBelow, main, step } from "./lib.mjs";

await main(async () => {
  const wanted = process.argv.slice(2);
  const files = filesBelow(["tests"]).filter(
    (path) =>
      path.endsWith(".test.mjs") &&
      (wanted.length === 0 || wanted.some((word) => path.includes(word))),
  );
  if (files.length === 0)
    throw new Failure(`no test file has ${wanted.join(" or ")} in its path`, 2);
  const { setup } = await import("./setup.mjs");
  await setup({ browsers: ["chromium", "firefox", "node"], native: true });
  const { build } = await import("./build.mjs");
  await build({ page: true, job: true, testing: true });
  step(`testing: ${files.length} files`);
  // One file after the other: they share two cores and a software GPU.
  const code = await exitCode(process.execPath, [
    "--test",
    "--test-concurrency=1",
    "--test-reporter=spec",
    ...files,
  ]);
  if (code !== 0) process.exitCode = 1;
});
