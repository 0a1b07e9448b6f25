import { hostPassed } from "./bodies.mjs";

/** Whether there is nothing to run. */
export const passed = () => hostPassed("chromium");
