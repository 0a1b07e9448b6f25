// `npm run docs`: the static site in docs/api. TypeDoc renders the API reference, the README and the
// guides; the sources that it links to become pages of the site, unless the project has an address.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Application, Converter } from "typedoc";
import { address } from "./address.mjs";
import { Failure, filesBelow, isMain, main, root, step } from "./lib.mjs";

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/**
 * Code as a page with an anchor per line.
 *
 * @param up - the way to the site's top.
 * @param name - of the site.
 * @param saved - a copy to be downloaded, as `{ file, as }`, where there is one.
 */
function codePage(title, code, { up, name, saved }) {
  const lines = code.trimEnd().split("\n");
  const rows = lines.map((line, at) => `<span id="L${at + 1}">${escaped(line)}</span>`);
  const save = saved
    ? `\n<p><a href="${saved.file}" download="${saved.as}">Download it as ${saved.as}</a></p>`
    : "";
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="stylesheet" href="${up}assets/custom.css">
<body class="source">
<a href="${up}index.html">${name}</a>
<h1>${title}</h1>${save}
<pre><code>${rows.join("\n")}</code></pre>
</html>
`;
}

/** The source files that the reference links to. */
function showSources(out, name) {
  for (const path of filesBelow(["pkg/src"])) {
    const page = join(out, "source", `${path}.html`);
    mkdirSync(dirname(page), { recursive: true });
    const up = "../".repeat(path.split("/").length);
    writeFileSync(page, codePage(path, readFileSync(join(root, path), "utf8"), { up, name }));
  }
}

/** Pages of examples that documents link to: to be read and saved, since beside the site they find no package. */
function showExamples(out, name) {
  const media = join(out, "media");
  for (const file of readdirSync(media).filter((one) => one.endsWith(".html"))) {
    const code = readFileSync(join(media, file), "utf8");
    const title = /<title>(.*)<\/title>/.exec(code)?.[1] ?? file;
    writeFileSync(join(media, `${file}.txt`), code);
    const saved = { file: `${file}.txt`, as: "index.html" };
    writeFileSync(join(media, file), codePage(title, code, { up: "../", name, saved }));
  }
}

/** What each document is for; those that are not named are explanations, below docs, or else of the project. */
const KINDS = {
  Tutorials: [
    "guides/quick-start",
    "guides/own-text",
    "guides/fine-tune-on-chats",
    "guides/worker",
  ],
  Reference: ["ops", "tested-hosts", "guides/errors", "guides/browsers", "guides/optimizers"],
  Project: ["testing", "dependencies", "publishing"],
};

function kindOf(path) {
  const [, name] = /^docs\/(.+)\.md$/.exec(path) ?? [];
  if (name === undefined) return "Project";
  const [named] = Object.entries(KINDS).find(([, names]) => names.includes(name)) ?? [];
  return named ?? (name.startsWith("guides/") ? "How-to guides" : "Explanations");
}

/** Names a document by its heading and puts it into a group of the navigation. */
function entitle(document, path) {
  const heading = /^# (.+)\n/.exec(document.content[0].text);
  if (!heading) throw new Failure(`${path} does not begin with a heading`);
  document.name = heading[1];
  document.frontmatter.group = kindOf(path);
}

/** Renders the site into `out`. */
export async function site(out = join(root, "docs", "api")) {
  const { version } = JSON.parse(readFileSync(join(root, "pkg", "package.json"), "utf8"));
  const own = address === undefined;
  const app = await Application.bootstrapWithPlugins({
    options: join(root, "typedoc.json"),
    out,
    name: `tinyloom ${version}`,
    displayBasePath: root,
    disableGit: true,
    gitRevision: `v${version}`,
    sourceLinkTemplate: own
      ? "../source/{path}.html#L{line}"
      : `${address}/blob/{gitRevision}/{path}#L{line}`,
  });
  app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_, document) => {
    entitle(document, `${document.name}.md`);
  });
  const project = await app.convert();
  if (!project) throw new Failure("TypeDoc could not read the package's sources");
  await app.generateOutputs(project);
  if (app.logger.hasErrors() || app.logger.hasWarnings()) {
    throw new Failure("TypeDoc has warnings; they are above");
  }
  const name = app.options.getValue("name");
  showExamples(out, name);
  if (own) showSources(out, name);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await site();
    step("the site is in docs/api; open docs/api/index.html");
  });
}
