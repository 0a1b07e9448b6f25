/** The list of lessons, with what a teacher needs of each. The answers are folded: pupils see the page, too. */
import { byId, make } from "../dom.ts";
import { factsOf } from "./facts.ts";
import { EXIT, lessons } from "./lessons.ts";

const items = lessons.map((lesson, index) => {
  const link = make("a", "", `${index + 1}. ${lesson.title}`);
  link.href = `./#lesson=${index + 1}`;
  const [question] = lesson.parts;
  const guesses = make("ul", "guesses");
  guesses.append(...(question?.answers ?? []).map((answer) => make("li", "", answer)));
  const more = make("details", "", make("summary", "", "What is shown, and the answer"));
  more.append(make("p", "", `Shown: ${lesson.shows}`), make("p", "", `Answer: ${lesson.answer}`));
  return make(
    "li",
    "",
    make("h2", "", link),
    make("p", "minutes", `${lesson.minutes} minutes`),
    make("p", "", question?.says(factsOf(undefined, true), "") ?? ""),
    guesses,
    more,
  );
});

byId("lessons", HTMLOListElement).replaceChildren(...items);
const minutes = lessons.reduce((sum, lesson) => sum + lesson.minutes, EXIT);
byId("minutes", HTMLElement).textContent = String(minutes);
byId("exit", HTMLElement).textContent = String(EXIT);
