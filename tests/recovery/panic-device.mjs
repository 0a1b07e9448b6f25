/**
 * Makes a device at whose next empty error scope the module panics: Dawn's answer to it is none that wgpu knows,
 * at which it gives up. The module sends empty scopes while it waits for bytes.
 */
export function breakDevice(device) {
  const push = device.pushErrorScope.bind(device);
  const pop = device.popErrorScope.bind(device);
  let open = 0;
  let deepest = 0;
  device.pushErrorScope = (filter) => {
    if (open === 0) deepest = 0;
    open += 1;
    deepest = Math.max(deepest, open);
    push(filter);
  };
  device.popErrorScope = () => {
    open -= 1;
    const answer = pop();
    return deepest === 1 ? answer.then(() => ({ message: "of no known kind" })) : answer;
  };
  const { createBuffer } = device;
  device.createBuffer = (descriptor) => {
    const buffer = createBuffer.call(device, descriptor);
    const map = buffer.mapAsync.bind(buffer);
    buffer.mapAsync = (...range) =>
      new Promise((later) => setTimeout(later, 100)).then(() => map(...range));
    return buffer;
  };
}
