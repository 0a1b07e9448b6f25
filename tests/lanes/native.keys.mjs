import { laneState } from "./cases.mjs";

export const state = () => laneState("native");
