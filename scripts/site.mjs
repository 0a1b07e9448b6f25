// `npm run docs`: the static site in docs/api. TypeDoc renders the API reference, the README and the
// guides; the sources that it links to become pages of the site, unless the project has an address.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Application, Converter, PageEvent } from "typedoc";
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

/** Programs that documents link to, as code to be read and saved: beside the site they find no package. */
const PROGRAM = /\.(html|jsx?|mjs|py|rs|wgsl)$/;

function showPrograms(out, name) {
  const media = join(out, "media");
  const programs = readdirSync(media).filter((file) => PROGRAM.test(file));
  for (const file of programs) {
    const code = readFileSync(join(media, file), "utf8");
    const isPage = file.endsWith(".html");
    const title = (isPage && /<title>(.*)<\/title>/.exec(code)?.[1]) || file;
    const saved = { file: `${file}.txt`, as: isPage ? "index.html" : file };
    rmSync(join(media, file));
    writeFileSync(join(media, saved.file), code);
    writeFileSync(join(media, pageOf(file)), codePage(title, code, { up: "../", name, saved }));
  }
}

const pageOf = (file) => (file.endsWith(".html") ? file : `${file}.html`);

/** The links of a page to programs, which lead to their code. */
const linkPrograms = (page) =>
  page.replace(/(href="(?:\.\.\/)?media\/)([^"/]+)"/g, (link, media, file) =>
    PROGRAM.test(file) ? `${media}${pageOf(file)}"` : link,
  );

/**
 * What each document is for. Others below docs are explanations, those in its folder guides are how-to guides,
 * and all beside docs are of the project.
 */
const KINDS = {
  Tutorials: [
    "guides/quick-start",
    "guides/own-text",
    "guides/fine-tune-on-chats",
    "guides/worker",
  ],
  "How-to guides": ["class"],
  Reference: ["ops", "tested-hosts", "guides/errors", "guides/browsers", "guides/optimizers"],
  Explanations: ["guides/kernels", "guides/numerics", "guides/alternatives"],
  Project: ["testing", "dependencies", "publishing"],
};

const DECISIONS = "docs/decisions/";

function kindOf(path) {
  if (path.startsWith(DECISIONS)) return "Decisions";
  const [, name] = /^docs\/(.+)\.md$/.exec(path) ?? [];
  if (name === undefined) return "Project";
  const [named] = Object.entries(KINDS).find(([, names]) => names.includes(name)) ?? [];
  return named ?? (name.startsWith("guides/") ? "How-to guides" : "Explanations");
}

/** The index of the decisions, then their pages, newest first. */
function decisions() {
  const pages = filesBelow([DECISIONS]).filter((path) => /\/\d+-[^/]+\.md$/.test(path));
  return [`${DECISIONS}README.md`, ...pages.sort().reverse()];
}

/** Names a document by its heading and puts it into a group of the navigation. */
function entitle(document, path) {
  const text = document.content.map((part) => part.text).join("");
  const heading = /^# (.+)\n/.exec(text);
  if (!heading) throw new Failure(`${path} does not begin with a heading`);
  document.name = heading[1].replaceAll("`", "");
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
  const listed = app.options.getValue("projectDocuments");
  app.options.setValue("projectDocuments", [...listed, ...decisions()], root);
  app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_, document) => {
    entitle(document, `${document.name}.md`);
  });
  app.renderer.on(PageEvent.END, (page) => {
    page.contents = linkPrograms(page.contents);
  });
  const project = await app.convert();
  if (!project) throw new Failure("TypeDoc could not read the package's sources");
  await app.generateOutputs(project);
  if (app.logger.hasErrors() || app.logger.hasWarnings()) {
    throw new Failure("TypeDoc has warnings; they are above");
  }
  const name = app.options.getValue("name");
  showPrograms(out, name);
  if (own) showSources(out, name);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await site();
    step("the site is in docs/api; open docs/api/index.html");
  });
}
