// The page: theme, the run file inside it, and its parts.
function tools() {
  const bar = make("div", "", { className: "bar" });
  const theme = make("button", "", { type: "button" });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => (theme.textContent = now() === "dark" ? "Light" : "Dark");
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = now() === "dark" ? "light" : "dark";
    name();
  });
  dark.addEventListener("change", name);
  name();
  bar.append(theme);
  const run = document.getElementById("gpuperf-run");
  if (run) {
    const button = make("button", "Save the run file", { type: "button" });
    button.addEventListener("click", () => save(new Blob([bytesIn(run)]), "run.jsonl.gz"));
    bar.append(button);
  }
  document.querySelector("header").before(bar);
}

async function start() {
  await Promise.all(all(document, "script.rows").map(addRows));
  const parts = all(document, ".linked").filter((part) => part.querySelector("table"));
  const taken = new Set(parts.map((part) => part.querySelector("table")));
  parts.forEach((part) => new Linked(part));
  all(document, "table").filter((table) => !taken.has(table) && table.tHead).forEach((table) => new Rows(table));
  all(document, "figure.chart").forEach((figure, index) => savable(figure, index + 1));
  document.documentElement.dataset.ready = "yes"; // for tests and for printers of pages
}

tools();
start();
