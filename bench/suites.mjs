// The suites of kernels alone, importable in a page and in Node.
import { attention } from "./kernels.mjs";

/** Shapes of the attention suite; the last ones were not used to fit the selection rule. */
const ATTENTION = [
  ...[128, 512, 1024, 2048, 4096, 8192].map((tokens) => ({ heads: 12, kvHeads: 12, headDim: 64, tokens })),
  ...[512, 4096].map((tokens) => ({ heads: 12, kvHeads: 4, headDim: 64, tokens })),
  ...[32, 80, 96, 128, 256].flatMap((headDim) =>
    [512, 2048].map((tokens) => ({ heads: 8, kvHeads: 8, headDim, tokens })),
  ),
  { heads: 6, kvHeads: 2, headDim: 64, tokens: 700 },
  { heads: 16, kvHeads: 2, headDim: 128, tokens: 1500 },
  { heads: 32, kvHeads: 8, headDim: 64, tokens: 3000 },
];

/** Every variant of every attention kernel; `only` keeps shapes whose text contains it. */
export async function attentionSuite(testing, gpu, { only = "", limits = "adapter" }, report) {
  const runtime = await testing.RawRuntime.create(gpu, JSON.stringify({ limits }));
  const capabilities = JSON.parse(runtime.capabilities());
  const results = [];
  for (const work of ATTENTION) {
    const { heads, kvHeads, headDim, tokens } = work;
    if (!` ${heads}/${kvHeads} x ${headDim}, ${tokens} `.includes(only)) continue;
    for (const row of await attention(testing, runtime, work)) {
      results.push(row);
      report(row);
    }
  }
  const { adapter, software, features, subgroupSize, limits: chosen } = capabilities;
  runtime.release();
  return { adapter, software, features, subgroupSize, limits: chosen, results };
}
