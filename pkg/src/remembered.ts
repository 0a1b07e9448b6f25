/** Texts kept from one session to the next: in IndexedDB, in Node in the user's folder for caches. */

import { cacheFolder, fileSystem, inNode, processId } from "./node.js";

const DATABASE = "tinyloom";
const STORE = "texts";

/**
 * The texts kept under a name, each under a key of its own.
 *
 * @returns none where there is no place for any.
 */
export async function remembered(name: string): Promise<string[]> {
  try {
    if (inNode()) return await filesOf(name);
    const all = IDBKeyRange.bound(`${name}\n`, `${name}\n\uffff`);
    const texts: unknown[] = await inStore("readonly", (store) => store.getAll(all));
    return texts.filter((text) => typeof text === "string");
  } catch {
    return [];
  }
}

/**
 * Keeps texts by their keys, where there is a place for them: a private window may have none. Another
 * tab or process loses none of its own keys by it.
 */
export async function remember(name: string, texts: ReadonlyMap<string, string>): Promise<void> {
  try {
    for (const [key, text] of texts) {
      if (inNode()) await keepFile(name, key, text);
      else await inStore("readwrite", (store) => store.put(text, `${name}\n${key}`));
    }
  } catch {
    // It will be measured again the next time.
  }
}

async function filesOf(name: string): Promise<string[]> {
  const { readdir, readFile } = await fileSystem();
  const files = (await readdir(folder(name))).filter((file) => file.endsWith(".json"));
  return Promise.all(files.sort().map((file) => readFile(`${folder(name)}/${file}`, "utf8")));
}

async function keepFile(name: string, key: string, text: string): Promise<void> {
  const { mkdir, rename, writeFile } = await fileSystem();
  await mkdir(folder(name), { recursive: true });
  const file = `${folder(name)}/${plain(key)}`;
  // Another process never reads half a file.
  await writeFile(`${file}.${processId()}`, text);
  await rename(`${file}.${processId()}`, `${file}.json`);
}

const plain = (name: string) => name.replace(/[^a-z0-9]+/gi, "-").slice(0, 200);

const folder = (name: string) => `${cacheFolder()}/${plain(name)}`;

async function inStore<T>(
  mode: IDBTransactionMode,
  operation: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await settled(opening);
  try {
    const transaction = database.transaction(STORE, mode);
    return await settled(operation(transaction.objectStore(STORE)));
  } finally {
    database.close();
  }
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
