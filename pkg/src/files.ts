/** What is loaded when something comes from the web, or from or to a disk or a stream. */

export { remember, remembered } from "./remembered.js";
export { openStreams } from "./save-streams.js";
export { findFile } from "./url-source.js";
