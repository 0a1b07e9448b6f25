// Has every kernel text with matrices of subgroups checked by Dawn's compiler of WGSL, and every case of products and
// attention by matrices encoded with its buffers, on Dawn's null backend: no software adapter has the feature, and naga
// does not know it. Prints the counts. From target/testing-wasm.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { create } from "webgpu";

const FLAGS = [
  "backend=null",
  "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia",
];
const FEATURES = ["chromium-experimental-subgroup-matrix", "shader-f16", "subgroups"];
const root = join(import.meta.dirname, "../..");
const load = (path) => import(pathToFileURL(join(root, path)).href);

const gpu = create(FLAGS);
await (await load("pkg/dist/host.js")).prepareHost(gpu);
const testing = await load("target/testing-wasm/tinyloom.js");
await testing.default({
  module_or_path: readFileSync(join(root, "target/testing-wasm/tinyloom_bg.wasm")),
});
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: FEATURES });

/** Errors and warnings of a text. */
async function complaints(code) {
  device.pushErrorScope("validation");
  const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
  const refused = await device.popErrorScope();
  const found = messages.map(({ type, lineNum, message }) => `${type} ${lineNum}: ${message}`);
  return found.length > 0 || !refused ? found : [refused.message];
}

const SIZES = { u32: 4, f32: 4, f16: 2, "vec4<f32>": 16, "vec2<u32>": 8, "atomic<u32>": 4 };

/** Bytes of a type, with the constants of its text. */
function bytes(type, value) {
  if (type in SIZES) return SIZES[type];
  const inside = type.slice("array<".length, -1);
  const comma = inside.lastIndexOf(",");
  return bytes(inside.slice(0, comma), value) * value(inside.slice(comma + 1));
}

/** Arrays in workgroup memory that are no multiple of 16 bytes: a driver would put no matrix at one behind them. */
function shifting(code) {
  const known = new Map();
  for (const [, name, of] of code.matchAll(/^const (\w+)\s*:\s*u32\s*=\s*([^;]+);/gm)) {
    known.set(name, of);
  }
  const value = (expression) => {
    const numbers = expression.replace(/\b(\d+)u/g, "$1");
    const plain = numbers.replace(/\b[A-Z]\w*/g, (name) => value(known.get(name)));
    return Function(`return Math.floor(${plain})`)();
  };
  const arrays = [...code.matchAll(/var<workgroup> (\w+)\s*:\s*([^;]+);/g)];
  return arrays.filter(([, , type]) => bytes(type.replaceAll(" ", ""), value) % 16 !== 0);
}

/** What the null backend has, in the words of a GPU with matrices: it offers none itself, and takes them all the same. */
const INFO = {
  vendor: "nvidia",
  architecture: "",
  device: "",
  description: "",
  subgroupMinSize: 32,
  subgroupMaxSize: 128,
  isFallbackAdapter: false,
  subgroupMatrixConfigs: [
    { componentType: "f16", resultComponentType: "f32", M: 16, N: 16, K: 16 },
  ],
};

/** What a case says whose commands were taken: the null backend clears what it should compute, and all around it. */
const TAKEN = "wrote past its output";

/**
 * Encodes the cases. At this backend's limits some have no tile of matrices that fits.
 *
 * @returns how many were encoded, and those that Dawn refused with what it says.
 */
async function encode() {
  const posed = await gpu.requestAdapter();
  Object.defineProperty(posed, "info", { value: INFO, configurable: true });
  const runtime = await testing.RawRuntime.create(gpu, posed, "{}");
  const { features } = JSON.parse(runtime.capabilities());
  if (!features.subgroupMatrix)
    return { encoded: 0, refused: ["the null backend has no matrices"] };
  const cases = JSON.parse(testing.testing_cases(false)).filter((name) => name.includes("by matr"));
  const refused = [];
  let encoded = 0;
  for (const [seed, name] of cases.entries()) {
    const results = new testing.TestingResults();
    const { detail } = JSON.parse(await testing.testing_run(runtime, name, seed, results, "run"));
    results.free();
    if (detail.includes("refused")) refused.push(`${name}: ${detail}`);
    if (detail.includes(TAKEN)) encoded += 1;
  }
  return { encoded, refused };
}

const texts = JSON.parse(testing.testing_matrix_texts());
let failed = 0;
for (const [name, code] of texts) {
  const found = await complaints(code);
  for (const [, array] of shifting(code)) found.push(`${array} ends off 16 bytes`);
  if (found.length === 0) continue;
  failed += 1;
  console.error(`FAILED ${name}: ${found.join("; ")}\n${code.slice(0, 400)}`);
}
// A wrong type of a matrix is found, or nothing was checked.
const wrong = texts[0][1].replace("subgroup_matrix_result<f32", "subgroup_matrix_result<u32");
if ((await complaints(wrong)).length === 0) {
  failed += 1;
  console.error("FAILED: sums of u32 were accepted");
}
const flagged = `var<workgroup> flag: u32;\n${texts[0][1]}`;
if (shifting(flagged).length !== 1) {
  failed += 1;
  console.error("FAILED: a flag of four bytes was not found");
}
const { encoded, refused } = await encode();
for (const refusal of refused) console.error(`FAILED ${refusal}`);
failed += refused.length;
console.log(
  `${texts.length} texts with subgroup matrices, ${encoded} cases encoded, ${failed} failed`,
);
process.exit(failed === 0 && texts.length >= 900 && encoded >= 20 ? 0 : 1);
