// `npm run plans`: the plans of crates/kernels/tests/golden, line by line.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { capture, Failure, fingerprint, main, root, run, step, target } from "./lib.mjs";

const USAGE = `npm run plans -- show NAME    prints the plans whose names hold NAME, such as "tiny: decode on Intel UHD"
npm run plans -- diff [REV]   compares this tree's plans and kernels with those of REV (default HEAD)`;

const folder = join(target, "plans");

/** Writes the listing of a source tree: of each case the lines, and each plan with the numbers of its lines. */
async function list(cwd, file, builds) {
  const env = { TINYLOOM_PLANS: file, CARGO_TARGET_DIR: builds };
  const of = ["-p", "tinyloom-kernels", "--features", "testing", "--test", "golden"];
  const args = ["test", "--quiet", "--locked", "--profile", "lane", ...of];
  await run("cargo", args, { cwd, env });
  if (!existsSync(file)) throw new Failure("that revision has no listing of plans as JSON");
}

/** Plans of this tree, or of a revision, by name. */
async function plans(revision) {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${revision ?? "tree"}.json`);
  if (revision === undefined) {
    step("listing the plans of this tree");
    await list(root, file, target);
  } else if (!existsSync(file)) {
    step(`listing the plans of ${revision}`);
    // Not below this tree, whose manifest cargo would find; always the same, so that what cargo builds is found again.
    const tree = join(tmpdir(), `plans-${fingerprint([], root).slice(0, 12)}`);
    rmSync(tree, { recursive: true, force: true });
    await run("git", ["worktree", "prune"]);
    await run("git", ["worktree", "add", "--quiet", "--detach", tree, revision]);
    try {
      // Not this tree's folder of builds: cargo takes two trees for one whose files have changed since, or have not.
      await list(tree, file, join(folder, "build"));
    } finally {
      await run("git", ["worktree", "remove", "--force", tree]);
    }
  }
  const listings = JSON.parse(readFileSync(file, "utf8"));
  const spelled = ({ lines, entries }) =>
    entries.map(([name, numbers]) => [name, numbers.map((number) => lines[number])]);
  return new Map(listings.flatMap(spelled));
}

/** A plan's text: under each dispatch is its kernel. */
const text = (lines) =>
  lines
    .map((line, index) => (index > 0 && index % 2 === 0 ? `    ${line}\n` : `${line}\n`))
    .join("");

/** What `git diff` says of two texts, without its head. */
function difference(before, after) {
  const files = ["before.txt", "after.txt"].map((name) => join(folder, name));
  writeFileSync(files[0], before);
  writeFileSync(files[1], after);
  const args = ["diff", "--no-index", "--no-color", "--unified=0", ...files];
  const { stdout } = spawnSync("git", args, { encoding: "utf8", maxBuffer: 1 << 28 });
  const lines = stdout.split("\n").slice(4);
  return lines.filter((line) => !line.startsWith("@@")).join("\n");
}

/** Adds a plan to those that have a difference. */
const note = (found, what, name) => found.set(what, [...(found.get(what) ?? []), name]);

/** Prints each difference once, with some of the plans that have it. */
function print(found) {
  for (const [what, names] of found) {
    const more = names.length > 3 ? `, and ${names.length - 3} more` : "";
    console.log(`in ${names.slice(0, 3).join("; ")}${more}:\n${what.trimEnd()}\n`);
  }
}

const isKernel = (_, index) => index > 0 && index % 2 === 0;

/** Where only kernels differ, the kernels are compared; otherwise the plans. */
function compare(before, after) {
  const [kernels, texts] = [new Map(), new Map()];
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const differing = names.filter((name) => {
    const [was, is] = [before, after].map((all) => all.get(name) ?? []);
    if (text(was) === text(is)) return false;
    const [own, now] = [was, is].map((lines) =>
      lines.filter((...at) => !isKernel(...at)).join("\n"),
    );
    if (own !== now) note(texts, `${text(was)}\0${text(is)}`, name);
    for (const [index, line] of own === now ? was.entries() : []) {
      const change = `- ${line}\n+ ${is[index]}`;
      if (line !== is[index] && kernels.get(change)?.at(-1) !== name) note(kernels, change, name);
    }
    return true;
  });
  const plans = new Map();
  for (const [both, having] of texts) {
    const what = difference(...both.split("\0"));
    plans.set(what, [...(plans.get(what) ?? []), ...having]);
  }
  print(plans);
  print(kernels);
  console.log(
    `${differing.length} of ${names.length} plans differ: ${plans.size} changes of plans, ${kernels.size} of kernels`,
  );
}

await main(async () => {
  const [command, argument, ...more] = process.argv.slice(2);
  if (command === "show" && argument !== undefined && more.length === 0) {
    const found = [...(await plans())].filter(([name]) => name.includes(argument));
    for (const [name, lines] of found) console.log(`${name}\n${text(lines)}`);
    if (found.length === 0) throw new Failure(`no plan's name holds "${argument}"`);
  } else if (command === "diff" && more.length === 0) {
    const revision = capture("git", ["rev-parse", "--verify", `${argument ?? "HEAD"}^{commit}`]);
    if (revision === undefined) throw new Failure(`git knows no revision ${argument}`, 2);
    const [before, after] = [await plans(revision), await plans()];
    compare(before, after);
  } else {
    throw new Failure(USAGE, 2);
  }
});
