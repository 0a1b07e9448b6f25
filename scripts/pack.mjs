// Packs the npm package as it is published: `npm run pack`. The folder target/package gets what users
// need, and target/tinyloom-VERSION.tgz is made of it. `npm publish` in pkg/ comes here, to be refused:
// what is published is the packed folder, and only once the project has an address.
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { address as decided } from "./address.mjs";
import { Failure, filesBelow, isMain, main, root, run, step, target } from "./lib.mjs";

const pkg = join(root, "pkg");

/** Files of dist that no source of the same name has. */
const GENERATED =
  /^(tinyloom|packed|tinyloom\.inline\.min|worker-thread|worker\/comlink|storage\/fflate|worker\/text|text\/thread-source|modeling-source)\.(js|d\.ts)$|^tinyloom_bg\.wasm$|^ts5$/;

/** What README's links reach. It is packed while there is no address that they could lead to. */
const DOCUMENTS = ["docs", "examples", "bench/peers/README.md", "CONTRIBUTING.md"];
/** Of it what is generated, or shows the site alone. */
const NO_DOCUMENT = /^docs\/(api|site\.css)$/;

/** What `npm publish` answers while there is no address. */
export const REFUSAL =
  "npm publish is refused: the project has no address yet; set it in scripts/address.mjs";

/** Set by `npm test`, which packs once before tests that run side by side. */
export const PACKED = "TINYLOOM_PACKED";

/** Packs the package and gives `{ folder, tarball }`: the paths of what npm publishes. */
export async function pack() {
  const folder = join(target, "package");
  if (process.env[PACKED]) return { folder, tarball: process.env[PACKED] };
  const { name, version } = stage({ folder });
  await run("npm", ["pack", "--loglevel=error", "--pack-destination", target], { cwd: folder });
  return { folder, tarball: join(target, `${name}-${version}.tgz`) };
}

/**
 * Fills the folder that is published; what lay there is deleted. Gives its package.json.
 *
 * @param address - where the project lives on the web.
 */
export function stage({ address = decided, folder }) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "dist"), { recursive: true });
  const manifest = JSON.parse(readFileSync(join(pkg, "package.json"), "utf8"));
  copySources(folder);
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"]) {
    copyFileSync(join(root, name), join(folder, name));
  }
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const base = address && `${address}/`;
  writeFileSync(
    join(folder, "README.md"),
    base ? absolute(readme, base, `v${manifest.version}`) : readme,
  );
  const subpaths = legacyEntries(manifest, folder);
  const documents = base ? [] : copyDocuments(folder);
  const files = [...manifest.files, ...subpaths, ...documents];
  const published = { ...manifest, files, ...whereabouts(address) };
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(published, null, 2)}\n`);
  return published;
}

/** The sources and what was made of them; what is left of sources since deleted stays behind. */
function copySources(folder) {
  cpSync(join(pkg, "src"), join(folder, "src"), { recursive: true });
  const sources = new Set(filesBelow(["pkg/src"]).map((path) => path.replace(/^pkg\/src\//, "")));
  const made = (name) => sources.has(`${name.replace(/\.(js|d\.ts)(\.map)?$/, "")}.ts`);
  const wanted = (name) => GENERATED.test(name) || made(name);
  const names = readdirSync(join(pkg, "dist"), { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .map((one) => join(one.parentPath ?? one.path, one.name).slice(join(pkg, "dist").length + 1));
  for (const name of names.map((one) => one.replaceAll("\\", "/"))) {
    if (!wanted(name) && !wanted(name.split("/")[0])) continue;
    cpSync(join(pkg, "dist", name), join(folder, "dist", name));
  }
}

/** README's documents, pictures and programs; gives their names for package.json's `files`. */
function copyDocuments(folder) {
  for (const path of filesBelow(DOCUMENTS, NO_DOCUMENT)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    copyFileSync(join(root, path), join(folder, path));
  }
  return DOCUMENTS;
}

/** package.json's fields that name the address; without one, what keeps the package from npm. */
function whereabouts(address) {
  if (!address) {
    const refuse = `node -e "console.error('${REFUSAL}'); process.exit(1)"`;
    return { private: true, scripts: { prepublishOnly: refuse } };
  }
  return {
    repository: { type: "git", url: `git+${address}.git`, directory: "pkg" },
    homepage: `${address}#readme`,
    bugs: { url: `${address}/issues` },
    scripts: {},
  };
}

/** README with links and figures that work away from the project's folder. */
export function absolute(markdown, base, tag) {
  const outside = /^([a-z]+:|#|\/)/i;
  const whole = (link, picture) =>
    outside.test(link)
      ? link
      : `${base}${picture ? "raw" : "blob"}/${tag}/${link.replace(/^\.\//, "")}`;
  return markdown
    .replace(/(!?)\[([^\]]*)\]\(([^)\s]+)\)/g, (_, picture, text, link) => {
      return `${picture}[${text}](${whole(link, picture)})`;
    })
    .replace(/\b(src|href)="([^"]+)"/g, (_, name, link) => {
      return `${name}="${whole(link, name === "src")}"`;
    });
}

/** Folders for resolvers that do not read `exports` (Parcel 2, older TypeScript); gives their names. */
function legacyEntries(manifest, folder) {
  const names = [];
  for (const [path, { default: file, types } = {}] of Object.entries(manifest.exports)) {
    if (!types || path === ".") continue;
    const name = path.slice(2);
    mkdirSync(join(folder, name), { recursive: true });
    const stub = { type: "module", main: `../${file.slice(2)}`, types: `../${types.slice(2)}` };
    writeFileSync(join(folder, name, "package.json"), `${JSON.stringify(stub, null, 2)}\n`);
    names.push(name);
  }
  return names;
}

if (isMain(import.meta.url)) {
  await main(async () => {
    if (process.argv.includes("--publish")) {
      throw new Failure(
        decided
          ? "publish the packed folder: npm run pack, then npm publish target/package"
          : REFUSAL,
      );
    }
    const { build } = await import("./build.mjs");
    const { setup } = await import("./setup.mjs");
    await setup();
    await build();
    const { tarball } = await pack();
    step(`packed ${basename(tarball)}`);
  });
}
