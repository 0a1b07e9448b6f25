// A worker with the package's API, which writes files by synchronous handles: `failing` makes the writes of a file fail,
// each with an error of that name, until it is called with nothing.
import { serve } from "../../pkg/worker/index.js"; // as the test's server has it

const { prototype } = FileSystemFileHandle;
const { createSyncAccessHandle } = prototype;
let [file, name] = [];
prototype.createSyncAccessHandle = async function (...options) {
  const handle = await createSyncAccessHandle.apply(this, options);
  if (this.name !== file) return handle;
  const failed = new DOMException("on purpose", name);
  if (name === "NotAllowedError") {
    handle.close();
    throw failed;
  }
  handle.write = () => {
    throw failed;
  };
  return handle;
};

serve({
  failing(...next) {
    [file, name] = next;
  },
});
