// A table as Markdown.

export function markdown(heads, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(heads), `|${"---|".repeat(heads.length)}`, ...rows.map(line)].join("\n");
}
