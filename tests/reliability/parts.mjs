// Runs the parts of `npm run reliability` one after the other, to the last.
import { Failure } from "../../scripts/lib.mjs";

/**
 * @param parts - pairs of a name and what runs the part, which gives whether it is whole.
 * @returns the names of the parts that are not whole, or that failed.
 */
export async function runParts(parts, options) {
  const wrong = [];
  for (const [name, work] of parts) {
    try {
      if (!(await work(options))) wrong.push(name);
    } catch (error) {
      console.error(`${name}:`, error instanceof Failure ? error.message : error);
      wrong.push(name);
    }
  }
  return wrong;
}
