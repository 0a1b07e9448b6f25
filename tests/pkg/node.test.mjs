import { test } from "node:test";
import { inNode } from "./harness.mjs";

test("the public API in Node with Dawn", { timeout: 1_200_000 }, (t) => inNode(t));
