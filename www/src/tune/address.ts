/** Addresses of models: what a visitor types, and in words why one did not load. */
import { TinyloomError } from "tinyloom/worker";

/** Where a model lies on the web. */
export interface Address {
  /** As the package takes it. */
  readonly source: string;
  /** What the model is called. */
  readonly name: string;
  /** Who is asked for it. */
  readonly host: string;
}

const HUB = "huggingface.co";
const HUB_TOO = /^(hf\.co|www\.huggingface\.co)$/;
/** A repository without `hf:`, as the hub writes it. A first part with a dot, or `localhost`, is that of a host. */
const BARE = /^(?!localhost\/)[\w-]+\/[\w-][\w.-]*([@/].*)?$/i;
/** Owner and name, a revision, and a file, as the package takes them. */
const REPOSITORY = /^hf:([\w.-]+\/[\w.-]+)(?:@(?:refs\/\w+\/[\w.-]+|[^/@\s]+))?(?:\/+(.*))?$/;
/** A page of the hub: a repository, what is shown of it, a revision, and what lies there. */
const PAGE = /^\/([\w.-]+\/[\w.-]+)(?:\/(?:tree|blob)\/(refs\/\w+\/[^/]+|[^/]+)(\/.*)?)?$/;
const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])$/;
const HINT =
  "A repository of the hub is hf:OWNER/NAME, as in hf:HuggingFaceTB/SmolLM2-135M-Instruct; @REVISION may follow it.";
const refused = (words: string, cause?: unknown): TinyloomError =>
  new TinyloomError("invalid-options", words, { cause });

/**
 * Reads what was typed: `hf:OWNER/NAME`, with a revision and a file if wanted, the same without `hf:`, the address of a
 * page of the hub, or that of a folder or of a GGUF file.
 *
 * @param secure - whether this page comes by https.
 * @throws TinyloomError `invalid-options`.
 */
export function addressOf(typed: string, secure: boolean): Address {
  const text = typed.trim();
  if (text === "") throw refused("Type the address of a model first.");
  if (BARE.test(text)) return ofHub(`hf:${text}`);
  if (/^hf:/i.test(text)) return ofHub(`hf:${text.slice(3)}`);
  const url = urlOf(text);
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw refused(
      `The page loads from https addresses; ${url.protocol}// is not one of them. A model on your disk is opened by the buttons above.`,
    );
  }
  if (url.protocol === "http:" && secure && !LOCAL.test(url.hostname)) {
    throw refused("Browsers let a page from https load from https addresses only; this is http.");
  }
  if (HUB_TOO.test(url.hostname)) url.hostname = HUB;
  const path = url.pathname.replace(/\/+$/, "");
  const page = url.hostname === HUB ? ofPage(path) : undefined;
  if (page) return page;
  const parts = path.split("/").filter((part) => part !== "");
  return { source: url.href, name: decoded(parts.at(-1) ?? url.host), host: url.host };
}

/** An address without a scheme is one of https, or of http on this machine. */
function urlOf(text: string): URL {
  const beginning = (url: URL): string => (LOCAL.test(url.hostname) ? "http://" : "https://");
  try {
    if (/^[a-z][a-z+.-]*:\/\//i.test(text)) return new URL(text);
    return new URL(beginning(new URL(`http://${text}`)) + text);
  } catch (cause) {
    throw refused(
      `“${text}” is no address. One is hf:OWNER/NAME, or https://… of a folder or a .gguf file.`,
      cause,
    );
  }
}

/** What a page of the hub shows; undefined where the path is that of a file, which has "resolve" in it. */
function ofPage(path: string): Address | undefined {
  const [, other] = /^\/(datasets|spaces|collections|docs|papers)\//.exec(path) ?? [];
  if (other)
    throw refused(`That page of the hub, below “${other}”, is not that of a model. ${HINT}`);
  const [, repository, revision = "", file = ""] = PAGE.exec(path) ?? [];
  if (!repository) return undefined;
  const source = `hf:${repository}${revision && `@${decoded(revision)}`}${decoded(file)}`;
  const given = ofHub(source);
  // The package's own writing has no branch with a slash in its name.
  if (!/%2f/i.test(revision) || /^refs\//.test(decoded(revision))) return given;
  const url = `https://${HUB}/${repository}/resolve/${revision}${file}`;
  return { ...given, source: url, name: file ? decoded(file).split("/").at(-1)! : repository };
}

function ofHub(source: string): Address {
  const [, repository, file] = REPOSITORY.exec(source) ?? [];
  if (repository === undefined) throw refused(HINT);
  return { source, name: file ? file.split("/").at(-1)! : repository, host: HUB };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What a page can find out of an address that its worker could not fetch. */
export interface Asked {
  /** Whether there is a network. */
  readonly online: boolean;
  /** Whether a server answers at all, even where it lets this page read nothing. */
  answers(address: string): Promise<"yes" | "no" | "forbidden">;
}

/**
 * The failure in a visitor's words; itself where the page's other words fit.
 *
 * @param host - who was asked.
 */
export async function addressFailure(
  thrown: unknown,
  host: string,
  asked: Asked,
): Promise<TinyloomError> {
  const error = TinyloomError.from(thrown);
  const { code, message } = error;
  const [, status] = / answered (\d{3})/.exec(message) ?? [];
  const [, failed] = /(https?:\S+) could not be fetched/.exec(message) ?? [];
  if (code === "storage-full") {
    return refused(
      "The browser has no room to keep the files of this model. Take the tick from “Keep its files in this browser”, or delete files that are kept.",
      error,
    );
  }
  if (failed) return refused(await unreached(failed, host, asked), error);
  if (status === "401" || status === "403") {
    // The package's own cure is a token, for which the page has no field.
    return refused(
      `The server ${host} does not give this model to everybody (${status}): there is none of that name, it is private, or its terms ` +
        "have to be accepted first. Look at its spelling, or download it there and open the folder here.",
      error,
    );
  }
  if (status) return refused(`The server ${host} answered ${status}. Try again later.`, error);
  if (/ is (missing|not there)[;,]/.test(message) || /there is neither /.test(message)) {
    return refused(missing(message, host), error);
  }
  if (/ (is|but) a web page[,:]/.test(message) || /no GGUF file, or an error page/.test(message)) {
    return refused("That address leads to a web page, not to a model's file.", error);
  }
  return error;
}

/** The words for an address that no answer came from. */
async function unreached(failed: string, host: string, asked: Asked): Promise<string> {
  if (!asked.online) return OFFLINE_MODEL;
  const answers = await asked.answers(failed);
  const at = new URL(failed).host;
  if (answers === "forbidden") {
    return (
      `The rules of this website do not let its pages load from ${at}. Who runs it can add https://${at} to connect-src in ` +
      "its Content-Security-Policy. Or download the model, and open its folder here."
    );
  }
  if (answers === "yes") {
    return (
      `The server ${at} answers, but lets no other website read its files: it sends no Access-Control-Allow-Origin (CORS). Download ` +
      "the model there, and open its folder here."
    );
  }
  return `The server ${at === host ? host : `${at}, to which ${host} points,`} does not answer. Look at the address and at your network.`;
}

const OFFLINE_MODEL =
  "There is no network. A model on your disk can be opened by the buttons above.";

/** The words for an address at which something lacks. */
function missing(message: string, host: string): string {
  const [, file = "a file"] =
    /([\w.-]+)(?: \([\w.]+\))? is (?:missing|not there)/.exec(message) ?? [];
  if (file.endsWith(".gguf"))
    return `The server ${host} has no file ${file} there. Look at its name.`;
  const what = /there is neither /.test(message) ? "no weights in safetensors" : `no ${file}`;
  return (
    `There is ${what} at this address. It has to be that of a folder with config.json, .safetensors files and ` +
    "tokenizer.json, or that of a .gguf file."
  );
}

/** Asks whether a server answers. An answer that scripts may not read counts too. */
export async function answers(address: string): Promise<"yes" | "no" | "forbidden"> {
  let forbidden = false;
  const hears = (event: SecurityPolicyViolationEvent) => {
    forbidden ||= forbids(event, address);
  };
  document.addEventListener("securitypolicyviolation", hears);
  try {
    await fetch(address, { method: "HEAD", mode: "no-cors", cache: "no-store" });
    return "yes";
  } catch {
    await new Promise((turn) => setTimeout(turn)); // its event comes after it
    return forbidden ? "forbidden" : "no";
  } finally {
    document.removeEventListener("securitypolicyviolation", hears);
  }
}

/** Whether a violation of the page's policy is that of fetching an address, and not of something else. */
export function forbids(
  { effectiveDirective: directive, blockedURI: blocked }: SecurityPolicyViolationEvent,
  address: string,
): boolean {
  if (directive !== "connect-src") return false;
  try {
    return new URL(blocked).origin === new URL(address).origin;
  } catch {
    return false; // such as "inline", or nothing
  }
}
