// Watches which kernels a test dispatches. What is recorded decides whether the test runs again (made.mjs).

/**
 * Watches the compute pipelines that this global's devices set. It imports nothing, since pages and workers evaluate its
 * text.
 *
 * @param classes - where WebGPU's classes are: the global object, or npm `webgpu`'s `globals`.
 * @param onKernel - hears `{ label, code }` of each kernel's text, once after each call of what this gives.
 * @returns forgets which kernels were set before.
 */
export function watch(classes, onKernel) {
  const [modules, pipelines, seen] = [new WeakMap(), new WeakMap(), new Set()];
  const wrap = (owner, name, made) => {
    const original = owner[name];
    owner[name] = function (...given) {
      return made(() => original.apply(this, given), ...given);
    };
  };
  const noted = (pipeline, { compute }) => {
    pipelines.set(pipeline, modules.get(compute.module));
    return pipeline;
  };
  const begin = () => {
    const { GPUDevice: { prototype: device } = {}, GPUComputePassEncoder } = classes;
    if (!device) return; // without WebGPU no kernel runs
    wrap(device, "createShaderModule", (make, { label = "", code }) => {
      const module = make();
      modules.set(module, { label, code });
      return module;
    });
    wrap(device, "createComputePipeline", (make, descriptor) => noted(make(), descriptor));
    wrap(device, "createComputePipelineAsync", async (make, descriptor) =>
      noted(await make(), descriptor),
    );
    wrap(GPUComputePassEncoder.prototype, "setPipeline", (set, pipeline) => {
      const kernel = pipelines.get(pipeline);
      if (kernel && !seen.has(kernel.code)) {
        seen.add(kernel.code);
        onKernel(kernel);
      }
      return set();
    });
  };
  if (classes.GPUDevice) begin();
  else {
    // A worker gets these classes after it was held, and makes no kernel before its wasm module.
    let begun = false;
    for (const name of ["compile", "compileStreaming", "instantiate", "instantiateStreaming"])
      wrap(WebAssembly, name, (make) => {
        if (!begun) begin();
        begun = true;
        return make();
      });
  }
  return () => seen.clear();
}

/** The function that a page or a worker calls with each kernel's text. Node hears each call. */
const TELLS = "tinyloomKernel";

/** Watches a page of Chromium that has not loaded anything yet, and each worker below it. Options as for `watch`. */
async function watchPage(page, onKernel) {
  const source = `(${watch})(globalThis, (kernel) => ${TELLS}(JSON.stringify(kernel)))`;
  const follow = (session, ...commands) => {
    session.on("Runtime.bindingCalled", ({ name, payload }) => {
      if (name === TELLS) onKernel(JSON.parse(payload));
    });
    session.on("Target.attachedToTarget", ({ sessionId }) => {
      // A worker waits until it is watched. All is sent at once: other listeners may let it go meanwhile.
      const worker = session.connection().session(sessionId);
      const watched = ["Runtime.evaluate", { expression: source }];
      follow(worker, watched, ["Runtime.runIfWaitingForDebugger"]).catch(() => undefined); // it has gone
    });
    const how = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true };
    const all = [
      ["Runtime.enable"],
      ["Runtime.addBinding", { name: TELLS }],
      ["Target.setAutoAttach", how],
      ...commands,
    ];
    return Promise.all(all.map(([method, options]) => session.send(method, options)));
  };
  const session = await page.createCDPSession();
  await follow(session, ["Page.addScriptToEvaluateOnNewDocument", { source }]);
}

/**
 * What the pages of this process dispatched: texts of kernels, the processes of their browsers, and whether a page was
 * opened that nobody watches.
 */
export const recorded = { texts: new Map(), browsers: new Set(), complete: true };
const watched = new WeakSet();

/** Records a page that has not loaded anything yet, for the key of this process's test file. Only Chromium's can be. */
export async function record(page) {
  const browser = page.browser();
  if (!/chrom/i.test(await browser.version())) {
    recorded.complete = false;
    return;
  }
  const { pid } = browser.process();
  if (!recorded.browsers.has(pid)) {
    recorded.browsers.add(pid);
    const seen = (target) => {
      const shown = target.type() === "page" && /^http/.test(target.url());
      if (shown && !watched.has(target)) recorded.complete = false;
    };
    for (const event of ["targetcreated", "targetchanged"]) browser.on(event, seen);
  }
  watched.add(page.target());
  await watchPage(page, (kernel) => recorded.texts.set(kernel.code, kernel));
}
