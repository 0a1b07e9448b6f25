/** Six lessons about a transformer that learns: what each trains, asks, and tells once the pupil has seen it. */

/** What the stage shows, as far as a lesson needs it. */
export interface Facts {
  /** The step that is shown, and the newest one. */
  readonly step: number;
  readonly newest: number;
  /** Right answers of the shown step's model; undefined before it was asked. */
  readonly right: number | undefined;
  readonly of: number;
  /** Heads that are cut. */
  readonly cut: number;
  /** What is typed. */
  readonly word: string;
  /** The letter that the pupil has chosen, by its place on the loom. */
  readonly chosen: number | undefined;
  /** Whether the run that is shown trains no more. */
  readonly ended: boolean;
  readonly recorded: boolean;
  /** Whether the pupil's own model is trained, so that the recording is only what comes before. */
  readonly trains: boolean;
  /** The loss of the newest step, and the validation losses by step. */
  readonly loss: number | undefined;
  readonly validations: readonly (readonly [step: number, loss: number])[];
  /** Right answers of the grey run, at its end. */
  readonly ghost: number | undefined;
}

/** A part of a lesson. Each asks or shows one thing. */
export interface Part {
  /** What the pupil reads. `guess` is the last answer that they chose. */
  readonly says: (facts: Facts, guess: string) => string;
  /** What they choose from; none is called right before they have seen it. */
  readonly answers?: readonly string[];
  /** What has to have happened before it goes on, and what is said until then. */
  readonly until?: { readonly is: (facts: Facts) => boolean; readonly waits: string };
  /** The run of the lesson begins here. */
  readonly begins?: true;
  /** A text of the pupil's is asked for. */
  readonly text?: true;
  /** The field for a word of the pupil's is there. */
  readonly field?: true;
  /** The picture can be saved. */
  readonly picture?: true;
}

export interface Lesson {
  readonly title: string;
  readonly minutes: number;
  /** Values of the form's fields, by their ids, of the run that it trains; without them the recording is looked at. */
  readonly run?: { readonly [id: string]: string };
  /** The step of the recording that it begins with. */
  readonly at?: number;
  /** The word on the loom. */
  readonly word?: string;
  readonly parts: readonly Part[];
  /** For the teacher: what is to be seen, and the answers. */
  readonly shows: string;
  readonly answer: string;
}

const count = ({ right, of }: Facts): string => `${right ?? "…"} of ${of}`;
const guessed = (guess: string): string => (guess === "" ? "" : `You said: “${guess}”. `);
const two = (loss: number | undefined): string => (loss === undefined ? "–" : loss.toFixed(2));

/** Whether the pupil's own run has ended, and its end is shown: a quick one is played slowly. */
const over = ({ ended, recorded, step, newest, right }: Facts): boolean =>
  ended && !recorded && step >= newest && right !== undefined;

/** The small model with its own settings. */
const REVERSE = { "text-source": "reverse", size: "thimble", seed: "1" };

/** The end of each lesson. */
const picture = (says: string): Part => ({ says: () => says, field: true, picture: true });

const watch: Lesson = {
  title: "Watch it learn",
  minutes: 5,
  run: REVERSE,
  parts: [
    {
      says: () =>
        "A model is going to read words and the same words backwards. Nobody tells it a rule. Will it ever reverse a word that it has never read?",
      answers: [
        "No: it can only repeat what it has read",
        "Yes, from the first step on",
        "Yes, after some hundred steps",
      ],
    },
    {
      says: () =>
        "Watch. Each square is a word that it never reads while it learns. A square turns green once its answer is right to the last letter.",
      begins: true,
      until: {
        is: ({ right = 0, of, recorded, trains }) =>
          of > 0 && right * 2 >= of && !(recorded && trains),
        waits: "It goes on when half of the squares are green.",
      },
    },
    {
      says: (facts, guess) =>
        `${guessed(guess)}At step ${facts.step} it answers ${count(facts)} words that it has never read. So it has not learned words by heart, it has found a rule. Drag the curve back to the beginning: at first its answers do not even stop at the right length.`,
    },
    {
      says: () =>
        "Now your own name: up to six small letters from a to z. Type it into the field and press Weave.",
      field: true,
      until: {
        is: ({ word }) => word !== "planet" && /^[a-z]{2,6}$/.test(word),
        waits: "It goes on when the loom has your name.",
      },
    },
    picture(
      "This is your name in a model that has learned before your eyes. Save the picture: it is your exit card.",
    ),
  ],
  shows:
    "A recording, then the pupil's own model: squares that turn green, the loss that falls, threads that become a pattern.",
  answer:
    "Yes, after some hundred steps. None of the 128 words is in its training text, so it cannot know them by heart. First it learns which letters there are, then where to stop, then the order.",
};

/** The letter of the answer after which it says the third letter of the word: “planet→ten” says “a”. */
const THIRD = 9;

const look: Lesson = {
  title: "Where does it look?",
  minutes: 8,
  at: 340,
  word: "planet",
  parts: [
    {
      says: () =>
        "This model has learned to reverse words. It has read planet, and has said t, e and n. Which letter of the word does it have to look at, to know what comes next?",
      answers: ["the 1st, p", "the 3rd, a", "the 4th, n", "the 6th, t"],
    },
    {
      says: () =>
        "Look for yourself: click the n of its answer, in the row at the bottom. Threads lead to the letters that it looks at: a colour for each head, and the thicker, the more.",
      until: {
        is: ({ chosen }) => chosen === THIRD,
        waits: "It goes on when you have clicked the n after the arrow, t and e.",
      },
    },
    {
      says: (_facts, guess) =>
        `${guessed(guess)}The card beside the loom says it in words: in layer 2 heads read the 3rd letter, a, and that is what it says next. What will happen to the 128 squares if these threads are cut?`,
      answers: ["Nothing: the other heads do it", "Some turn grey", "Most turn grey"],
    },
    {
      says: () => "Cut them: press “Cut these threads” on the card, and wait for the squares.",
      until: {
        is: ({ cut, right }) => cut > 0 && right !== undefined,
        waits: "It goes on when the squares were asked again.",
      },
    },
    {
      says: (facts, guess) =>
        `${guessed(guess)}Without these threads it answers ${count(facts)}. They are not decoration: the answers go through them. Put them back, cut others, and find heads that it hardly needs.`,
    },
    picture("Choose a word of your own, click a letter of its answer, and save the picture."),
  ],
  shows:
    "A finished model, recorded: the threads of one letter, and the squares after its heads were cut.",
  answer:
    "The 3rd letter, a: the next one of the word backwards. With the heads cut that read it, most squares turn grey. The number is on the page; it depends on which heads were cut.",
};

const layer: Lesson = {
  title: "Predict: one layer",
  minutes: 10,
  run: { ...REVERSE, size: "flat", steps: "300" },
  parts: [
    {
      says: () =>
        "The last model had two layers with four heads each. The next one has a single layer with a single head: each letter can look back once. Will it learn to reverse words?",
      answers: ["Yes, as well", "Yes, but more slowly", "Hardly any word"],
    },
    {
      says: () => "It learns, for 300 steps. Grey is the model with two layers, for comparison.",
      begins: true,
      until: {
        is: over,
        waits: "It goes on after step 300, in a minute or two without a GPU.",
      },
    },
    {
      says: (facts, guess) =>
        `${guessed(guess)}It answers ${count(facts)}. The one with two layers answered ${facts.ghost ?? "nearly all"}. Why? Click a letter of its answer and see where the one head looks. What would it need a second look for?`,
      answers: [
        "To read the letter, after the first look has found the place",
        "To read the same letter twice",
        "To forget the word",
      ],
    },
    {
      says: (_facts, guess) =>
        `${guessed(guess)}It takes one look to find out where in the word it is, and another one to read the letter there. A layer is a look: with one of them it can know the place or read a letter, not one after the other.`,
    },
    picture(
      "Choose a word for which its answer is wrong in an interesting way, and save the picture.",
    ),
  ],
  shows:
    "A model with a single look that stays grey, in front of the curve and squares of the one with two layers.",
  answer:
    "Hardly any word: a few of 128, where two layers reach more than 120. One look finds the place, the next reads the letter there.",
};

const step: Lesson = {
  title: "Predict: sixty times the step",
  minutes: 6,
  run: { ...REVERSE, size: "hot", steps: "150" },
  parts: [
    {
      says: () =>
        "Each step of training moves all weights a little towards fewer mistakes. Now each step is sixty times as large. What will the curve of its surprise do?",
      answers: [
        "Fall sixty times as fast",
        "Fall at first, then stay where it is",
        "Rise from the beginning",
      ],
    },
    {
      says: () =>
        "It learns, for 150 steps. Grey is the model with the usual step. Watch the curve below, and the answer on top.",
      begins: true,
      until: {
        is: over,
        waits: "It goes on after step 150, in about a minute without a GPU.",
      },
    },
    {
      says: (facts, guess) =>
        `${guessed(guess)}Its surprise is ${two(facts.loss)}, and it answers ${count(facts)}. A surprise of about 3.1 is that of one who knows how often each letter occurs and an answer ends, and nothing else. Each step jumps over what it aims at, like a ball that is hit too hard over the hole.`,
    },
    picture("Save the picture of a model that has stopped learning."),
  ],
  shows: "A curve that falls for a few steps and stays near 3.1, and an answer that never comes.",
  answer:
    "It falls at first, then stays. 3.14 is the surprise of one who knows how often each letter and the end occur, and nothing of the word.",
};

const heart: Lesson = {
  title: "Learning by heart",
  minutes: 8,
  run: {
    "text-source": "paste",
    size: "story-small",
    steps: "300",
    "sequence-length": "64",
    seed: "1",
  },
  parts: [
    {
      says: () =>
        "The next model reads one short text again and again. A tenth of it, at the end, is kept from it. What happens to its surprise on the part that it reads, and on the part that it does not?",
      answers: [
        "Both fall, and stay together",
        "On what it reads it falls; on the rest it falls, then stops or rises",
        "Both stay as they are",
      ],
    },
    {
      says: () =>
        "Give it a text of about 3,000 letters: your own, or the one that is here. It stays in this browser.",
      text: true,
    },
    {
      says: () =>
        "It learns, for 300 steps. The line is its surprise on what it reads, the dots are that on the part it never sees.",
      begins: true,
      until: {
        is: over,
        waits: "It goes on after step 300, in two or three minutes without a GPU.",
      },
    },
    {
      says: (facts, guess) => {
        const { validations } = facts;
        const last = validations.at(-1)?.[1];
        const best = validations.reduce<readonly [number, number] | undefined>(
          (least, one) => (least && least[1] <= one[1] ? least : one),
          undefined,
        );
        const least = best ? `, and was lowest, ${two(best[1])}, at step ${best[0]}` : "";
        return `${guessed(guess)}On what it reads its surprise is ${two(facts.loss)}. On what it has never seen it is ${two(last)}${least}. It has learned the text by heart. Type a beginning of a sentence from the text: it goes on as the text does. Then one that is not in it.`;
      },
      field: true,
    },
    picture("Save the picture: your text, as a model knows it by heart."),
  ],
  shows:
    "Two curves that part: the loss on the text that it reads keeps falling, the validation loss stops or rises.",
  answer:
    "On what it reads the surprise keeps falling; on the rest it falls at first, then stops or rises. That is learning by heart (overfitting). More text, a smaller model or fewer steps help.",
};

const line: Lesson = {
  title: "The number line",
  minutes: 5,
  run: { "text-source": "sort", size: "thimble", seed: "1", steps: "400" },
  parts: [
    {
      says: () =>
        "For a model the digits are ten different signs: 3 and 8 are no more alike than 3 and 4. This one learns to sort digits. What will it treat as most alike then?",
      answers: [
        "3 and 8, which look alike",
        "4 and 5, which are neighbours",
        "None: all stay equally different",
      ],
    },
    {
      says: () =>
        "Watch the map of the digits beside the loom. Nobody gave it one: it is made of the numbers that the model has for each digit.",
      begins: true,
      until: {
        is: (facts) => over(facts) || (!facts.recorded && (facts.right ?? 0) >= 0.75 * facts.of),
        waits: "It goes on when three quarters of the squares are green.",
      },
    },
    {
      says: (facts, guess) =>
        `${guessed(guess)}It sorts ${count(facts)} rows right, and on its map neighbours lie beside each other. To sort, it has to know which digit is larger, so it has made itself a number line. Drag the curve back and watch the line fold up again.`,
    },
    picture("Weave digits of your own, and save the picture with your model's number line."),
  ],
  shows: "The ten digits, first scattered, then in a row: the model's own number line.",
  answer:
    "Neighbours such as 4 and 5. Sorting needs to know which digit is larger, and a line is the simplest map of that. 0 and 9 lie at its ends.",
};

export const lessons: readonly Lesson[] = [watch, look, layer, step, heart, line];

/** Minutes for the exit card: each pupil shows one picture. */
export const EXIT = 3;
