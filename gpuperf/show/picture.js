// Saves the present view of a chart as a PNG, with its title and its legend. Nothing leaves the page.
const INLINED = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "text-anchor",
  "paint-order", "vector-effect", "r",
];
const MARGIN = 16, LINE = 20, SHARP = 2; // user units, and pixels of the PNG for each of them
const SVG = "http://www.w3.org/2000/svg";

// Returns a copy of an SVG without what is hidden; its colours and sizes are attributes, not the page's styles.
function plainCopy(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...all(svg, "*")], to = [copy, ...all(copy, "*")];
  const hidden = [];
  from.forEach((node, index) => {
    const style = getComputedStyle(node);
    if (style.display === "none") hidden.push(to[index]);
    for (const name of INLINED) {
      if (name === "r" ? node.tagName === "circle" : style[name]) to[index].setAttribute(name, style.getPropertyValue(name));
    }
    to[index].removeAttribute("class");
  });
  hidden.forEach((node) => node.remove());
  return copy;
}

function words(content, x, y, bold) {
  const node = document.createElementNS(SVG, "text");
  const looks = { x, y, fill: getComputedStyle(document.body).color, "font-size": bold ? 16 : 13, "font-weight": bold ? 600 : 400 };
  Object.entries(looks).forEach(([name, setting]) => node.setAttribute(name, setting));
  node.textContent = content;
  return node;
}

// Returns an SVG of a chart drawn in the page: title, legend of the series that are shown, and the drawing.
function composed(figure, svg) {
  const { width, height } = svg.viewBox.baseVal;
  const ruler = document.createElement("canvas").getContext("2d");
  const sheet = document.createElementNS(SVG, "svg");
  sheet.setAttribute("font-family", getComputedStyle(document.body).fontFamily);
  let y = MARGIN + 12;
  const write = (content, bold) => {
    ruler.font = `${bold ? "600 16px" : "13px"} ${sheet.getAttribute("font-family")}`;
    let line = "";
    for (const word of [...content.split(/\s+/), null]) {
      const longer = line ? `${line} ${word}` : word;
      if (word !== null && ruler.measureText(longer).width < width - 2 * MARGIN) { line = longer; continue; }
      if (line) sheet.append(words(line, MARGIN, y, bold));
      y += line ? LINE : 0;
      line = word;
    }
  };
  const caption = figure.querySelector("figcaption");
  const [title, ...rest] = (caption ? caption.textContent : document.title).split(/\. /);
  write(title.trim().replace(/\.$/, ""), true);
  if (rest.length) write(rest.join(". ").trim(), false);
  let x = MARGIN;
  ruler.font = `13px ${sheet.getAttribute("font-family")}`;
  const pressed = figure.querySelector(".legend [aria-pressed=true]") !== null;
  for (const item of all(figure, ".legend > li")) {
    if (item.querySelector(".missing") || (pressed && !item.querySelector("[aria-pressed=true]"))) continue;
    const name = item.textContent.trim(), room = ruler.measureText(name).width + 40;
    if (x + room > width && x > MARGIN) [x, y] = [MARGIN, y + LINE];
    const swatch = item.querySelector("svg");
    if (swatch) {
      const sign = plainCopy(swatch);
      Object.entries({ x, y: y - 11, width: 14, height: 14 }).forEach(([key, setting]) => sign.setAttribute(key, setting));
      sheet.append(sign);
    }
    sheet.append(words(name, x + 20, y, false));
    x += room;
  }
  const drawing = plainCopy(svg);
  Object.entries({ x: 0, y: y + 4, width, height }).forEach(([key, setting]) => drawing.setAttribute(key, setting));
  sheet.append(drawing);
  Object.entries({ width, height: y + 4 + height }).forEach(([key, setting]) => sheet.setAttribute(key, setting));
  return sheet;
}

async function pictureOf(figure) {
  const svg = figure.querySelector(".stage > svg, .chart > svg");
  let image = figure.querySelector("img");
  if (svg) {
    image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(composed(figure, svg)))}`;
    await image.decode();
  }
  const canvas = document.createElement("canvas");
  canvas.width = SHARP * image.naturalWidth;
  canvas.height = SHARP * image.naturalHeight;
  const paper = canvas.getContext("2d");
  paper.fillStyle = getComputedStyle(document.body).backgroundColor;
  paper.fillRect(0, 0, canvas.width, canvas.height);
  if (!svg) paper.filter = getComputedStyle(image).filter;
  paper.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function save(blob, name) {
  const link = make("a", "", { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savable(figure, number) {
  const button = make("button", "Save as PNG", { type: "button", className: "save" });
  button.addEventListener("click", async () => {
    try {
      save(await pictureOf(figure), `chart-${number}.png`);
    } catch {
      button.textContent = "This browser cannot draw the chart as PNG";
    }
  });
  figure.append(button);
}
