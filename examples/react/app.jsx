import { StrictMode, useState, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import { get, learn, pause, subscribe, write } from "./brain.js";

function Notes() {
  const { status, busy, step, steps, written } = useSyncExternalStore(subscribe, get, get);
  const [text, setText] = useState("");
  const learned = step > 0;
  return (
    <main>
      <h1>It learns what you write</h1>
      <textarea
        rows="6"
        aria-label="Your notes"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <p>
        <button
          type="button"
          id="learn"
          disabled={busy || step >= steps}
          onClick={() => learn(text)}
        >
          {learned ? "Go on" : "Learn"}
        </button>
        <button type="button" id="pause" disabled={!busy} onClick={pause}>
          Pause
        </button>
        <button
          type="button"
          id="write"
          disabled={busy || !learned}
          onClick={() => write(text.slice(-20) || "The ")}
        >
          Write
        </button>
      </p>
      <progress max={steps} value={step} />
      <p id="status" role="status">
        {status}
      </p>
      <output>{written}</output>
    </main>
  );
}

createRoot(document.getElementById("root")).render(
  <StrictMode>
    <Notes />
  </StrictMode>,
);
