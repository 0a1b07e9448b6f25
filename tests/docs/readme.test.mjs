// The README's programs, word for word, with the packed tarball: `npm run try` as a test.
// reads: README.md#code scripts/try.mjs
import { tryLines, tryPage } from "../../scripts/try.mjs";
import { longTest } from "../gate/core.mjs";

const LONG = { timeout: 600_000 };
const PLACE = "with the packed tarball";

const tell = (t, { seconds, losses }) =>
  t.diagnostic(`${seconds.toFixed(0)} s, loss ${losses[0]} to ${losses.at(-1)}`);

// On a CPU Firefox compiles in a third of the time that Chromium takes.
longTest(`the README's page trains ${PLACE}`, LONG, async (t) => tell(t, await tryPage("firefox")));
longTest(`the README's first program trains ${PLACE}`, LONG, async (t) =>
  tell(t, await tryLines("firefox")),
);
