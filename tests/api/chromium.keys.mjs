import { hostState } from "./bodies.mjs";

export const state = () => hostState("chromium");
