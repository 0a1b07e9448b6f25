/** The steps of the tour, and how they are taken. Both load with it. */

/** What driver.js says of the element that it shows. */
const OPENS = ["aria-haspopup", "aria-expanded", "aria-controls"];

const steps = [
  {
    element: "#loom-canvas",
    title: "The loom",
    description:
      "A small transformer learns here, in your browser. It reads the letters below and says those on top. The threads are what it looks at, and they move because it learns.",
  },
  {
    element: "#loss-chart",
    title: "The loss",
    description:
      "How surprised the model is by the right letter. The dotted line is blind guessing, the dashed line is as good as any model can get.",
  },
  {
    element: "#samples-panel",
    title: "What it writes",
    description: "Its own answers, from its first steps to the last. The newest are on top.",
  },
  {
    element: "#task-field",
    title: "Choose what it learns",
    description:
      "Sums, brackets, stories, Shakespeare, or a text of your own. Nothing leaves the page.",
  },
  {
    element: "#ask-panel",
    title: "Ask it",
    description:
      "Type a beginning, also while it trains. The answer says which step's model wrote it.",
  },
  {
    element: "#runs-panel",
    title: "Your runs stay",
    description:
      "Each run that you start is kept in this browser. Compare, go on after a reload, or export it for transformers.",
  },
];

/**
 * Takes the tour.
 *
 * @param ends - hears that it is over.
 */
export async function takeTour(ends: () => void): Promise<void> {
  const [{ driver }] = await Promise.all([
    import("driver.js"),
    import("driver.js/dist/driver.css"),
  ]);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const tour = driver({
    animate: !still,
    smoothScroll: !still,
    showProgress: true,
    progressText: "{{current}} of {{total}}",
    doneBtnText: "Done",
    // Parts of driver.js that are not what assistive technology takes them for: the popover's title is a page's header
    // there, and the element that is shown, which need not be a control, one that opens it.
    onPopoverRender({ title, footer }) {
      title.setAttribute("role", "none");
      footer.setAttribute("role", "group");
    },
    onHighlightStarted(element) {
      queueMicrotask(() => {
        for (const name of OPENS) element?.removeAttribute(name);
      });
    },
    steps: steps.map(({ element, ...popover }) => ({ element, popover })),
    // Of a tour that ends while a step is still moving, driver.js does not tell once it has ended.
    onDestroyStarted() {
      tour.destroy();
      ends();
    },
  });
  tour.drive();
}
