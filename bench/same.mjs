// node bench/same.mjs OLD NEW [--model seed] [--documents N] [--out FILE]
// What must be the same to the bit on this machine's GPU, in headless Chromium. OLD and NEW are folders with `pkg/dist`
// of each build. Both continue a prompt greedily by 256 tokens in each format of the weights. NEW trains in f32 and in
// mixed precision twice, and once more with a save and a resume in the middle. Exits with 1 if anything differs.
// Prints the bytes that each training takes on the GPU, too.
import { writeFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { commandLine } from "../scripts/lib.mjs";
import { BUILDS, openBuilds } from "./builds.mjs";

const { values, positionals } = commandLine({
  allowPositionals: true,
  options: {
    model: { type: "string", default: "seed" },
    documents: { type: "string", default: "8" },
    out: { type: "string" },
  },
});
const builds = await openBuilds(positionals);

/** What a function of same-page.mjs gives for a build, in a fresh page. */
const ofBuild = (build, work, ...args) =>
  builds.inPage(
    async (build, work, args) => {
      const works = await import("/bench/same-page.mjs");
      return works[work](await import(`/${build}/pkg/index.js`), ...args);
    },
    build,
    work,
    args,
  );

const differences = [];
/** Notes whether what was found is the same, under its name. */
function compare(what, found, expected) {
  const same = isDeepStrictEqual(found, expected);
  if (!same) differences.push(what);
  console.log(`${same ? "same" : "NOT THE SAME"}: ${what}`);
}

const results = { texts: {}, training: {} };
try {
  for (const build of BUILDS)
    results.texts[build] = await ofBuild(build, "greedyTexts", values.model);
  results.adapter = results.texts.new.adapter;
  for (const [what, text] of Object.entries(results.texts.new.texts)) {
    const kinds = `${text.length} tokens, ${new Set(text).size} of them distinct`;
    compare(`${what} of ${values.model}: ${kinds}`, text, results.texts.old.texts[what]);
  }
  for (const precision of ["f32", "mixed"]) {
    const documents = Number(values.documents);
    const options = { precision, documents };
    const trained = await ofBuild("new", "repeatedRuns", values.model, options);
    results.training[precision] = trained;
    const { first, second, resumed } = trained.runs;
    const what = `training of ${values.model} x ${documents} in ${precision}`;
    const files = Object.keys(first.files).length;
    compare(`${what}, twice: ${first.losses.length} losses and ${files} files`, second, first);
    compare(`${what}, resumed in the middle`, resumed, first);
    console.log(`${what}: ${(trained.gpuBytes / 1e6).toFixed(0)} MB on the GPU`);
  }
} finally {
  await builds.close();
}
console.log(`adapter: ${Object.values(results.adapter).filter(Boolean).join(" ")}`);
if (values.out) writeFileSync(values.out, `${JSON.stringify(results, null, 2)}\n`);
process.exit(differences.length > 0 ? 1 : 0);
