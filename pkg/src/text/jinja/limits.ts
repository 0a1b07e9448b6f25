/** What bounds templates: the time and the memory that one rendering takes, and how a template is refused. */

/** What a template cannot do; the message says which, and the caller learns of it. */
export class TemplateFault extends Error {}

/** What `raise_exception` of the template says. */
export class TemplateRefusal extends TemplateFault {}

export const fault = (message: string) => new TemplateFault(message);

/** Steps that a template takes at most: nodes it evaluates, items and characters that filters read one by one. */
const MOST_STEPS = 20_000_000;
/** Characters that are as much work as one step, where the engine copies or searches them. */
const CHARACTERS_OF_A_STEP = 16;
/** UTF-16 units of a text at most, as long as a template may make one. */
const LONGEST = 1 << 28;
/** Items of a list at most, as long as a template may make one. */
const MOST_ITEMS = 1_000_000;

/** One rendering. Rendering is synchronous, so there is one at a time. */
interface Rendering {
  steps: number;
  /** Values other than texts that the template has printed. */
  readonly printed: Set<object>;
}
let current: Rendering | undefined;

/** Runs one rendering with bounds of its own, and notes what it prints. */
export function rendering<T>(printed: Set<object>, run: () => T): T {
  const around = current;
  current = { steps: 0, printed };
  try {
    return run();
  } finally {
    current = around;
  }
}

/** Counts work of the rendering. */
export function charge(steps: number): void {
  if (!current) return;
  current.steps += steps;
  if (current.steps > MOST_STEPS) throw fault(`it takes more than ${MOST_STEPS} steps`);
}

/** Counts work on this number of characters. */
export const chargeText = (length: number) => charge(length / CHARACTERS_OF_A_STEP);

/** Notes that a value other than a text is printed. */
export function notePrinted(value: object): void {
  current?.printed.add(value);
}

export function expectLength(length: number): void {
  if (!(length <= LONGEST)) throw fault(`it makes a text of more than ${LONGEST} characters`);
}

/** Refuses a list that is too long before it is made, and counts the work of making it. */
export function expectItems(count: number): void {
  if (!(count <= MOST_ITEMS)) throw fault(`it makes a list of more than ${MOST_ITEMS} items`);
  charge(count);
}

/** A text `count` times, 0 times where `count` is negative. */
export function times(text: string, count: number): string {
  const many = Math.max(0, count);
  expectLength(text.length * many);
  return text.repeat(many);
}
