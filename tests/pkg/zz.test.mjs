import { test } from "node:test";
import { inNode } from "./harness.mjs";
test("merged", { timeout: 900_000 }, (t) => inNode(t, ["batch", "decoding", "generation", "looks", "training", "runs", "estimates"]));
