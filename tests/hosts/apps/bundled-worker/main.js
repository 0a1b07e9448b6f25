import { show } from "./body.js";

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
show(
  new Promise((done, fail) => {
    worker.onmessage = ({ data }) => (data.message ? fail(data) : done(data));
    worker.onerror = fail;
  }),
);
