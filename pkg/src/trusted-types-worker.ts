/** Workers of a page that requires Trusted Types. */

/** What a page may ask for script addresses, where it requires Trusted Types. */
interface Policy {
  createScriptURL(url: string): string;
}

let policy: Policy | undefined;

/**
 * Opens a worker where the page may require Trusted Types: its address then comes from the policy named
 * "tinyloom". Bundlers only know `new Worker(new URL(…))`, so the global `Worker` is replaced during that one call.
 */
export function openTrusted(open: () => Worker): Worker {
  const scope = globalThis as unknown as {
    trustedTypes?: { createPolicy(name: string, rules: object): Policy };
    Worker: typeof Worker;
  };
  const Given = scope.Worker;
  try {
    policy ??= scope.trustedTypes?.createPolicy("tinyloom", {
      createScriptURL: (url: string) => url,
    });
  } catch {
    // The page allows no such policy: it has a default one, or the call below is refused.
  }
  if (!policy) return open();
  const { createScriptURL } = policy;
  try {
    scope.Worker = function Trusting(url: string | URL, options?: WorkerOptions) {
      return new Given(createScriptURL.call(policy, String(url)), options);
    } as unknown as typeof Worker;
    return open();
  } finally {
    scope.Worker = Given;
  }
}
