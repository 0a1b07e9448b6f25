/** The page's import map, which its worker has not. */

/** The address of a module by its name; undefined where no import map names it. */
export async function resolve(name: string): Promise<string | undefined> {
  try {
    return import.meta.resolve?.(name); // old browsers and some bundlers have no such function
  } catch {
    return undefined;
  }
}
