// Tables: sort by a click on a head, filter by words, unfold.
// Every text that this script shows was text in the page before: it is only ever set as textContent.
const all = (within, selector) => [...within.querySelectorAll(selector)];
const make = (name, content, properties) => {
  const made = Object.assign(document.createElement(name), properties);
  if (content) made.textContent = content;
  return made;
};

const bytesIn = (element) => Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));

// A long table is written with its first rows; the others, escaped in the same way, are compressed beside it.
async function addRows(element) {
  const rows = new Blob([bytesIn(element)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const body = element.parentElement.querySelector("tbody");
  body.insertAdjacentHTML("beforeend", await new Response(rows).text());
  element.remove();
}

const SCALES = { n: 1e-9, µ: 1e-6, u: 1e-6, m: 1e-3, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const PREFIXED = /^([nµumkKMGTP])(?:s$|i?B|FLOP|Hz|W$)/;
function value(text) {
  const found = /^[<>~±+]*\s*(-?−?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(\S*)/i.exec(text);
  if (!found) return null;
  const prefix = PREFIXED.exec(found[2]);
  return Number(found[1].replace("−", "-").replaceAll(",", "")) * (prefix ? SCALES[prefix[1]] : 1);
}

class Rows {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = [...this.body.rows]; // in the order of the page: marks name them by number
    this.heads = [...table.tHead.rows[0].cells];
    this.names = this.heads.map((head) => head.textContent.trim());
    this.texts = null;
    this.words = [];
    this.hidden = () => false;
    this.changed = () => {};
    if (this.rows.length > 1) this.heads.forEach((head, index) => this.sortable(head, index));
    if (this.rows.length > 7) this.filterable();
    if (table.parentElement.classList.contains("tall")) this.unfoldable();
  }
  sortable(head, index) {
    const button = make("button", "", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => this.sort(head, index));
  }
  sort(head, index) {
    const now = head.getAttribute("aria-sort");
    this.heads.forEach((other) => other.removeAttribute("aria-sort"));
    const next = now === null ? "ascending" : now === "ascending" ? "descending" : null;
    if (next) head.setAttribute("aria-sort", next);
    const rows = [...this.rows];
    if (next) {
      const sign = next === "ascending" ? 1 : -1;
      const keys = new Map(rows.map((row) => [row, this.key(row, index)]));
      rows.sort((a, b) => compare(keys.get(a), keys.get(b), sign));
    }
    this.body.append(...rows);
  }
  key(row, index) {
    const failed = row.classList.contains("failure");
    const text = failed || !row.cells[index] ? "" : row.cells[index].textContent.trim();
    return { text, number: value(text) };
  }
  filterable() {
    const search = make("input", "", { type: "search", placeholder: "filter rows" });
    search.setAttribute("aria-label", `Filter the rows of: ${this.title()}`);
    this.count = make("output", "");
    const line = make("div", "", { className: "tools filter" });
    line.append(search, this.count);
    this.table.parentElement.before(line);
    search.addEventListener("input", () => {
      this.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.apply();
    });
  }
  unfoldable() {
    this.more = make("button", `Show all ${this.rows.length} rows`, { type: "button" });
    this.more.addEventListener("click", () => this.unfold());
    this.table.parentElement.after(this.more);
  }
  unfold() {
    if (!this.more) return;
    this.table.parentElement.classList.add("whole");
    this.more.remove();
    this.more = null;
  }
  title() {
    return this.table.caption ? this.table.caption.textContent : "table";
  }
  shows(number) {
    if (this.hidden(number)) return false;
    if (!this.words.length) return true;
    this.texts ??= this.rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    return this.words.every((word) => this.texts[number].includes(word));
  }
  apply() {
    let shown = 0;
    this.unfold();
    this.rows.forEach((row, number) => {
      const visible = this.shows(number);
      row.classList.toggle("off", !visible);
      shown += visible;
    });
    if (this.count) this.count.textContent = shown < this.rows.length ? `${shown} of ${this.rows.length} rows` : "";
    this.changed();
  }
}

function compare(a, b, sign) {
  const empty = (key) => key.text === "" || key.text === "–";
  if (empty(a) || empty(b)) return empty(a) - empty(b); // last in either direction
  if (a.number !== null && b.number !== null) return sign * (a.number - b.number);
  return sign * a.text.localeCompare(b.text, "en", { numeric: true });
}
