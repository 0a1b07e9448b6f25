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
    const code = await exitCode(process.execPath, [
      "--test",
      `--test-concurrency=${concurrency}`,
      "--test-reporter=spec",
      ...group,
    ]);
    if (code !== 0) process.exitCode = 1;
  }
});
