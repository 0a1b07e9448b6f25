// The documents whose programs are tests, and which of them run, by their keys.
import { codeBlocks } from "../../scripts/documents.mjs";
import { filesBelow } from "../../scripts/lib.mjs";
import { hashOf, productKey, sourcesBelow, versionOf } from "../gate/inputs.mjs";
import { keyOf } from "../gate/key.mjs";
import { openTests } from "../gate/passed.mjs";

/** README's programs run in readme.test.mjs. */
export const documents = ["README.md", "docs/ops.md", ...filesBelow(["docs/guides"])];

/** What runs programs, and the files that they read. */
const AROUND = [
  ...["docs.test", "documents"].map((name) => `tests/docs/${name}.mjs`),
  ...["browser", "documents", "server", "machine", "random-checkpoint"].map(
    (name) => `scripts/${name}.mjs`,
  ),
  ...sourcesBelow(["tests/files/hub-tokenizer", "tests/reference/fixtures/llama"]),
];

/**
 * The documents whose programs are to run, as `openTests` gives them: a document's key has its programs alone. The variable
 * TINYLOOM_GUIDE names some of them.
 */
export function openDocuments() {
  const hosts = ["node", "chromium", "firefox"].map(versionOf);
  const around = [hashOf(AROUND), productKey(), ...hosts];
  const tests = documents.slice(1).map((path) => {
    const programs = codeBlocks(path).map(
      ({ language, code, reason }) => `${language} ${reason} ${code}`,
    );
    return { name: path, group: path, key: keyOf(...programs, ...around) };
  });
  const opened = openTests("docs", tests);
  const part = process.env.TINYLOOM_GUIDE;
  if (!part) return opened;
  const run = opened.run.filter(({ name }) => name.includes(part));
  const how = `TINYLOOM_GUIDE=${part} npm test -- docs/docs`;
  if (run.length === 0)
    throw new Error(`no document that is to run has "${part}" in its path: ${how}`);
  return { ...opened, run, ended() {} }; // the others keep their keys
}
