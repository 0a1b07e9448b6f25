import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    rolldownOptions: { input: ["index.html", "headless.html"] },
  },
  worker: { format: "es" },
  // The package finds its wasm module beside itself, which pre-bundling would break.
  optimizeDeps: { exclude: ["tinyloom"] },
});
