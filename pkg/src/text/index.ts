/** What is loaded with the first dataset: readers of texts, documents and saved datasets. */

export { fromDocuments, fromSource } from "./build.js";
export { loadDataset, saveDataset } from "./saved.js";
export { documentOf } from "./view.js";
