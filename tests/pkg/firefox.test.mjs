import { test } from "node:test";
import { inBrowser } from "./harness.mjs";

test("the public API in Firefox", { timeout: 1_200_000 }, (t) => inBrowser(t, "firefox"));
