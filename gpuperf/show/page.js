"use strict";
// Every text that this script shows was text in the page before: it is only ever set as textContent.
(() => {
  const all = (within, selector) => [...within.querySelectorAll(selector)];
  const make = (name, content, properties) => {
    const made = Object.assign(document.createElement(name), properties);
    if (content) made.textContent = content;
    return made;
  };

  // ---- tables: sort by a click on a head, filter by words ----
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

  // ---- the roofline ----
  const USUAL = /^(time|interval|speed-up|attained|moved|of roof|bound by|caveats)/;
  class Roofline {
    constructor(part) {
      this.figure = part.querySelector("figure");
      this.svg = this.figure.querySelector(".chart > svg");
      this.rows = new Rows(part.querySelector("table"));
      // The columns before the time name the row; of the others, the tip has the usual ones.
      const time = this.rows.names.findIndex((name) => name.startsWith("time"));
      this.told = this.rows.names.map((name, index) => index < time || USUAL.test(name));
      this.alone = new Set(); // series that are isolated; none means all
      this.marks = all(this.svg, ".marks > *").map((node) => this.mark(node));
      this.layers = all(this.svg, ".layer > [data-s]");
      this.series = new Map(this.marks.map((mark) => [mark.row, mark.series]));
      this.rows.hidden = (row) => this.alone.size > 0 && !this.alone.has(this.series.get(row));
      this.rows.changed = () => this.refresh();
      this.views();
      this.legend();
      this.stage();
    }
    mark(node) {
      const data = node.dataset;
      const first = this.svg.classList[0].slice(2);
      const places = { ...data };
      const own = node.tagName === "circle"
        ? `${node.getAttribute("cx")} ${node.getAttribute("cy")}`
        : /translate\(([^)]*)\)/.exec(node.getAttribute("transform"))[1];
      if (!node.classList.contains("absent")) places[first] = own;
      return { node, places, row: Number(data.r), series: node.parentElement.dataset.s, x: 0, y: 0, shown: true };
    }
    view(name, first) {
      if (!first) this.svg.setAttribute("class", `v-${name}`);
      for (const mark of this.marks) {
        const place = mark.places[name];
        mark.x = null;
        if (place) [mark.x, mark.y] = place.split(" ").map(Number);
        if (first) continue; // as the page was written
        mark.node.classList.toggle("absent", !place);
        if (!place) continue;
        if (mark.node.tagName === "circle") {
          mark.node.setAttribute("cx", mark.x);
          mark.node.setAttribute("cy", mark.y);
        } else {
          const turn = mark.node.getAttribute("transform").replace(/translate\([^)]*\)/, `translate(${place})`);
          mark.node.setAttribute("transform", turn);
        }
      }
    }
    views() {
      const choices = this.figure.querySelector(".views");
      if (choices) {
        choices.hidden = false;
        choices.addEventListener("change", (event) => {
          this.view(event.target.value);
          this.leave();
        });
      }
      this.view(this.svg.classList[0].slice(2), true);
    }
    legend() {
      this.buttons = all(this.figure, ".legend > li").map((item) => {
        const button = make("button", "", { type: "button" });
        button.append(...item.childNodes);
        button.dataset.s = item.dataset.s;
        button.setAttribute("aria-pressed", "false");
        button.addEventListener("click", (event) => this.isolate(item.dataset.s, event.ctrlKey || event.metaKey || event.shiftKey));
        item.append(button);
        return button;
      });
    }
    isolate(series, more) {
      const only = this.alone.size === 1 && this.alone.has(series);
      if (more) this.alone.has(series) ? this.alone.delete(series) : this.alone.add(series);
      else this.alone = new Set(only ? [] : [series]);
      this.buttons.forEach((button) => button.setAttribute("aria-pressed", String(this.alone.has(button.dataset.s))));
      this.rows.apply();
    }
    refresh() {
      for (const mark of this.marks) {
        mark.shown = this.rows.shows(mark.row);
        mark.node.classList.toggle("off", !mark.shown);
      }
      const filtered = this.rows.words.length > 0;
      this.layers.forEach((layer) =>
        layer.classList.toggle("off", filtered || (this.alone.size > 0 && !this.alone.has(layer.dataset.s))));
      all(this.svg, ".point text, .point .leader").forEach((label) => label.classList.toggle("off", filtered || this.alone.size > 0));
      this.leave();
    }
    stage() {
      const stage = make("div", "", { className: "stage", tabIndex: 0 });
      stage.setAttribute("role", "application");
      stage.setAttribute("aria-label", "Points of the chart: the arrow keys move between them, Enter isolates their series, Escape shows all");
      this.tip = make("div", "", { className: "tip", hidden: true });
      this.tip.setAttribute("role", "status");
      this.svg.before(stage);
      stage.append(this.svg, this.tip);
      this.area = stage;
      stage.addEventListener("pointermove", (event) => this.hover(event));
      stage.addEventListener("pointerleave", () => this.leave());
      stage.addEventListener("click", (event) => this.click(event));
      stage.addEventListener("keydown", (event) => this.key(event));
      stage.addEventListener("blur", () => this.leave());
    }
    near(event) {
      const box = this.svg.getBoundingClientRect();
      const scale = this.svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      let best = null, least = (16 * scale) ** 2;
      for (const mark of this.marks) {
        if (!mark.shown || mark.x === null) continue;
        const far = (mark.x - x) ** 2 + (mark.y - y) ** 2;
        if (far < least) [best, least] = [mark, far];
      }
      return best;
    }
    hover(event) {
      const mark = this.near(event);
      if (mark !== this.now) mark ? this.show(mark) : this.leave();
    }
    click(event) {
      const mark = this.near(event);
      if (mark) this.isolate(mark.series, event.ctrlKey || event.metaKey || event.shiftKey);
    }
    key(event) {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key in steps || event.key === "Home" || event.key === "End") {
        const open = this.marks.filter((mark) => mark.shown && mark.x !== null);
        if (!open.length) return;
        const at = open.indexOf(this.now), last = open.length - 1;
        const next = event.key === "Home" ? 0 : event.key === "End" ? last
          : at < 0 ? 0 : (at + steps[event.key] + open.length) % open.length;
        this.show(open[next]);
      } else if (event.key === "Enter" && this.now) {
        this.isolate(this.now.series, event.shiftKey);
      } else if (event.key === "Escape") {
        if (this.alone.size) this.isolate([...this.alone][0], false), this.alone.size && this.isolate([...this.alone][0], false);
        this.leave();
      } else return;
      event.preventDefault();
    }
    show(mark) {
      this.leave();
      this.now = mark;
      mark.node.classList.add("on");
      const row = this.rows.rows[mark.row];
      row.classList.add("on");
      const list = make("dl");
      [...row.cells].forEach((cell, index) => {
        const text = cell.textContent.trim();
        if (text && text !== "–" && this.told[index]) list.append(make("dt", this.rows.names[index]), make("dd", text));
      });
      this.tip.replaceChildren(make("b", this.buttons.find((button) => button.dataset.s === mark.series).textContent.trim()), list);
      this.tip.hidden = false;
      const scale = this.svg.getBoundingClientRect().width / this.svg.viewBox.baseVal.width;
      const left = mark.x * scale + 14, top = mark.y * scale + 10;
      const width = this.tip.offsetWidth, height = this.tip.offsetHeight;
      const beyond = left + width > this.area.clientWidth;
      this.tip.style.left = `${Math.max(0, beyond ? left - width - 28 : left)}px`;
      this.tip.style.top = `${Math.max(0, Math.min(top, this.area.clientHeight - height))}px`;
    }
    leave() {
      if (!this.now) return;
      this.now.node.classList.remove("on");
      this.rows.rows[this.now.row].classList.remove("on");
      this.now = null;
      this.tip.hidden = true;
    }
  }

  // ---- the page: theme, and the run file inside it ----
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
      const save = make("button", "Save the run file", { type: "button" });
      save.addEventListener("click", () => {
        const bytes = Uint8Array.from(atob(run.textContent), (letter) => letter.charCodeAt(0));
        const link = make("a", "", { download: "run.jsonl.gz", href: URL.createObjectURL(new Blob([bytes])) });
        link.click();
        URL.revokeObjectURL(link.href);
      });
      bar.append(save);
    }
    document.querySelector("header").before(bar);
  }

  tools();
  const parts = all(document, ".roofline");
  const taken = new Set(parts.map((part) => part.querySelector("table")));
  parts.filter((part) => part.querySelector("table")).forEach((part) => new Roofline(part));
  all(document, "table").filter((table) => !taken.has(table) && table.tHead).forEach((table) => new Rows(table));
})();
