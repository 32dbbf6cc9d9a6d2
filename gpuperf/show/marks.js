// Charts whose marks are linked with the rows of a table: hover, isolate, filter.
const USUAL =
  /^(time|interval|speed-up|attained|moved|of roof|bound by|caveats|case|verdict|base|head|change|95 %|q$|detectable)/;
class Linked {
  constructor(part) {
    this.figure = part.querySelector("figure");
    this.svg = this.figure.querySelector(".chart > svg");
    this.rows = new Rows(part.querySelector("table"));
    // The columns before the time name the row; of the others, the tip has the usual ones.
    const time = this.rows.names.findIndex((name) => name.startsWith("time"));
    this.told = this.rows.names.map((name, index) => index < time || USUAL.test(name));
    this.alone = new Set(); // series that are isolated; none means all
    this.marks = all(this.svg, ".marks > *").map((node) => this.mark(node));
    this.frames = all(this.svg, ".row[data-row]"); // what a row has beside its marks
    this.layers = all(this.svg, ".layer > [data-s]");
    this.series = new Map(this.marks.map((mark) => [mark.row, mark.series]));
    this.rows.hidden = (row) => this.alone.size > 0 && !this.alone.has(this.series.get(row));
    this.rows.changed = () => this.refresh();
    this.views();
    this.legend();
    this.strike();
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
  // A series without a place in the present view is struck out in the legend.
  strike() {
    const drawn = new Set(this.marks.filter((mark) => mark.x !== null).map((mark) => mark.series));
    for (const button of this.buttons) {
      button.classList.toggle("missing", !drawn.has(button.dataset.s));
      button.title = drawn.has(button.dataset.s) ? "" : "these bytes are not known";
    }
  }
  views() {
    const choices = this.figure.querySelector(".views");
    if (choices) {
      choices.hidden = false;
      choices.addEventListener("change", (event) => {
        this.view(event.target.value);
        this.strike();
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
    this.frames.forEach((frame) => frame.classList.toggle("off", !this.rows.shows(Number(frame.dataset.row))));
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
      const step = steps[event.key];
      let next = event.key === "End" ? last : event.key === "Home" || at < 0 ? 0 : (at + step + open.length) % open.length;
      // Up and down leave the row, if it has several marks.
      const leaves = /Up|Down/.test(event.key) && at >= 0;
      while (leaves && next !== at && open[next].row === open[at].row) next = (next + step + open.length) % open.length;
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
    if (mark.node.dataset.t) this.tip.append(make("p", mark.node.dataset.t));
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
