/**
 * What is loaded when something comes from the web, or from or to a disk or a stream, and when `generate`
 * does more than draw tokens. One part: each further one costs every app some hundred bytes.
 */

export { biases, withText } from "./decoding.js";
export { remember, remembered } from "./remembered.js";
export { openStreams } from "./save-streams.js";
export { findFile } from "./url-source.js";
