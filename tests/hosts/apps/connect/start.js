import { connect } from "tinyloom/worker";
import { show, work } from "./body.js";

export function start() {
  show(connect().then(work));
}
