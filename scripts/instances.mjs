// Makes a function of the glue that wasm-bindgen writes, whose state is its module's: each call gives an instance of
// its own. After a panic a page goes on with another one, and what still refers to the first keeps to it.
import { readFileSync, writeFileSync } from "node:fs";

const EXPORTED = /^export (class|function) (\w+)/gm;
const LAST = "export { initSync, __wbg_init as default };\n";
/** Nobody calls it. */
const SYNCHRONOUS = /^function initSync\([\s\S]*?^}\n/m;

/** Rewrites the glue, and says so in its declarations. */
export function makeInstances(glue) {
  const text = readFileSync(glue, "utf8");
  const names = [...text.matchAll(EXPORTED)].map(([, , name]) => name);
  if (
    names.length === 0 ||
    !text.endsWith(LAST) ||
    !SYNCHRONOUS.test(text) ||
    /^import /m.test(text)
  ) {
    throw new Error(`${glue} is not as this version of wasm-bindgen writes it`);
  }
  const body = text.slice(0, -LAST.length).replace(EXPORTED, "$1 $2").replace(SYNCHRONOUS, "");
  const all = ["default: __wbg_init", ...names].join(", ");
  writeFileSync(glue, `export function instance() {\n${body}return { ${all} };\n}\n`);
  const types = glue.replace(/js$/, "d.ts");
  const note = "// tinyloom.js exports instance(), which gives what is declared here.\n";
  writeFileSync(types, note + readFileSync(types, "utf8"));
}
