/** The recording's file. It is on its way while the page's parts load: the first picture of the loom is made of it. */
import file from "./recorded.bin?url";

let asked: Promise<Response> | undefined;

/** The answer of the server, for one reader. */
export function recordingFile(): Promise<Response> {
  asked ??= fetch(file);
  asked.catch(() => undefined); // the reader reports the error
  return asked;
}
