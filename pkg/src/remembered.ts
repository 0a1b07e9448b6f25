/** Texts kept from one session to the next: in IndexedDB, in Node in the user's folder for caches. */

import { cacheFolder, fileSystem, inNode, processId } from "./node.js";

const DATABASE = "tinyloom";
const STORE = "texts";

/** The text last kept under a name; undefined where there is none or no place for any. */
export async function remembered(name: string): Promise<string | undefined> {
  try {
    if (inNode()) return await (await fileSystem()).readFile(file(name), "utf8");
    const text = await inStore("readonly", (store) => store.get(name));
    return typeof text === "string" ? text : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps a text, where there is a place for it: a private window may have none. */
export async function remember(name: string, text: string): Promise<void> {
  try {
    if (inNode()) {
      const { mkdir, rename, writeFile } = await fileSystem();
      await mkdir(cacheFolder(), { recursive: true });
      // Another process never reads half a file.
      const whole = `${file(name)}.${processId()}`;
      await writeFile(whole, text);
      await rename(whole, file(name));
    } else {
      await inStore("readwrite", (store) => store.put(text, name));
    }
  } catch {
    // It will be measured again the next time.
  }
}

const file = (name: string) =>
  `${cacheFolder()}/${name.replace(/[^a-z0-9]+/gi, "-").slice(0, 200)}.json`;

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
