// The figures of the documents as Vega-Lite charts of results in bench/results.

const PEERS = {
  tinyloom: "tinyloom",
  "webgpu-llm": "webgpu-llm 0.1.0",
  jax: "jax-js 0.1.25",
  tfjs: "tfjs-backend-webgpu 4.22",
};
const CONFIGS = ["tiny", "mid", "seed"];
const COLORS = ["#0b6e4f", "#c8963e", "#8a5a83", "#4a7ba7", "#b5533c", "#6b7a8f"];

const CONFIG = {
  background: "white",
  font: "system-ui, sans-serif",
  padding: 12,
  axis: {
    labelFontSize: 12,
    labelLimit: 240,
    titleFontSize: 12,
    gridColor: "#e8e8e8",
    titleFontWeight: "normal",
  },
  legend: { labelFontSize: 12, title: null, symbolStrokeWidth: 3 },
  title: { anchor: "start", fontSize: 15, subtitleFontSize: 12, subtitleColor: "#555", offset: 14 },
  header: { labelFontSize: 13, title: null, labelOrient: "top", labelAnchor: "start" },
  range: { category: COLORS },
  view: { stroke: null },
};

// Vega takes a line of text for wider than it is: a long subtitle would leave room at the right.
const chart = (title, subtitle, values, rest) => ({
  $schema: "https://vega.github.io/schema/vega-lite/v6.json",
  config: CONFIG,
  title: { text: title, subtitle },
  data: { values },
  ...rest,
});

const lines = (x, y, color) => ({
  width: 520,
  height: 260,
  mark: { type: "line", point: { size: 45 }, strokeWidth: 2.5 },
  encoding: {
    x: { ...x, type: "quantitative", scale: { type: "log", base: 2 } },
    y: { ...y, type: "quantitative", scale: { zero: true } },
    color: { ...color, type: "nominal", sort: null },
  },
});

function steps({ results }, device) {
  const values = results
    .filter(({ workload, milliseconds }) => workload.startsWith("train ") && milliseconds)
    .map(({ workload, peer, milliseconds }) => ({
      config: workload.slice("train ".length),
      peer: PEERS[peer],
      milliseconds,
      label: milliseconds.toPrecision(milliseconds < 10 ? 2 : 3),
    }));
  const y = { field: "peer", type: "nominal", sort: Object.values(PEERS), title: null };
  const x = {
    field: "milliseconds",
    type: "quantitative",
    scale: { type: "log", domain: [1, 1000] },
    title: "milliseconds per step, loss read back (logarithmic)",
  };
  const subtitle = ["everyone in one run", device];
  return chart("A training step", subtitle, values, {
    facet: { row: { field: "config", type: "nominal", sort: CONFIGS } },
    spec: {
      width: 480,
      height: 92,
      layer: [
        {
          mark: { type: "bar", height: { band: 0.7 } },
          encoding: {
            x: { ...x, stack: null },
            x2: { datum: 1 },
            y,
            color: {
              condition: { test: "datum.peer === 'tinyloom'", value: COLORS[0] },
              value: "#b9bfc9",
            },
          },
        },
        {
          mark: { type: "text", align: "left", dx: 5, fontSize: 12 },
          encoding: { x, y, text: { field: "label" } },
        },
      ],
    },
  });
}

function attention({ results }, device) {
  const points = results
    .filter(({ kernel, picked, heads, kvHeads }) => {
      return kernel === "attention_forward" && picked && heads === kvHeads;
    })
    .map(({ heads, headDim, tokens, teraflops }) => ({
      heads: `${heads} heads of ${headDim}`,
      tokens,
      teraflops,
    }));
  // Heads that were measured at one length make no line.
  const values = points.filter((one) =>
    points.some(({ heads, tokens }) => heads === one.heads && tokens !== one.tokens),
  );
  const subtitle = ["causal, f32, the picked kernel", device];
  const x = { field: "tokens", title: "tokens" };
  const y = { field: "teraflops", title: "TFLOP/s, the causal half counted" };
  return chart("Attention forward", subtitle, values, lines(x, y, { field: "heads" }));
}

function growth({ results }, device) {
  const values = results
    .map(({ workload, microsecondsPerGigaflop }) => ({
      tokens: Number(/12 layers, (\d+) tokens/.exec(workload)?.[1]),
      microsecondsPerGigaflop,
    }))
    .filter(({ tokens }) => tokens > 0);
  const subtitle = ["seed configuration, documents of 512 tokens", device];
  const x = { field: "tokens", title: "tokens per step" };
  const y = { field: "microsecondsPerGigaflop", title: "µs for a billion operations" };
  return chart("A step's time against its arithmetic", subtitle, values, {
    ...lines(x, y, {}),
    encoding: { ...lines(x, y, {}).encoding, color: { value: COLORS[0] } },
  });
}

/** Each figure by name: the workload whose results it shows, and its chart. */
export const FIGURES = {
  steps: { workload: "peers", draw: steps },
  attention: { workload: "attention", draw: attention },
  growth: { workload: "growth", draw: growth },
};
