import { TinyloomError } from "tinyloom/worker";
import type { RunSettings } from "./settings.ts";
import { pack, unpack } from "./tar.ts";
import type { Training } from "./training.ts";

/** What this page adds to a checkpoint. */
const DEMO_FILE = "tinyloom-demo.json";

/** The checkpoint as a tar archive. */
export async function save({ trainer, settings }: Training): Promise<Blob> {
  const demo = new TextEncoder().encode(JSON.stringify(settings, null, 2));
  return pack({ ...(await trainer.save()), [DEMO_FILE]: demo });
}

/** The settings and the trainer's files of an archive that `save` gave. */
export async function open(
  archive: Blob,
): Promise<{ settings: RunSettings; files: Record<string, Blob> }> {
  const { [DEMO_FILE]: demo, ...files } = await unpack(archive);
  if (!demo) {
    throw new TinyloomError(
      "invalid-checkpoint",
      `the archive has no ${DEMO_FILE}; load one saved by this page`,
    );
  }
  return { settings: JSON.parse(await demo.text()) as RunSettings, files };
}
