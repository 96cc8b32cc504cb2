// Tables sort by a click on a heading. A narrow page shows each row of a wide one as a list, where
// each value needs its heading beside it.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  table.classList.toggle("lists", heads.length > 4);
  for (const row of body.rows) heads.forEach((head, i) => {
    row.cells[i].dataset.head = head.textContent;
    row.cells[i].classList.toggle("none", i > 0 && ["–", ""].includes(row.cells[i].textContent));
  });
  heads.forEach((head, i) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows], texts = new Map(rows.map(row => [row, row.cells[i].textContent]));
    const value = text => parseFloat(text.replace(/[,\s]/g, ""));
    rows.sort((a, b) => {
      const [s, t] = [texts.get(a), texts.get(b)], [x, y] = [value(s), value(t)];
      if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
      return (down ? -1 : 1) * (isNaN(x) ? s.localeCompare(t) : x - y);
    });
    body.append(...rows);
  }));
}

// Charts are drawn when they come near the screen, and again where width or theme changes.
const themes = JSON.parse(document.getElementById("themes").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const charts = [...document.querySelectorAll("figure.chart")].map(figure => ({
  figure,
  host: figure.querySelector(".vega"),
  link: figure.querySelector(".csv"),
  run: figure.closest(".run"),
}));

// Their specifications, packed by gzip.
const specs = (async () => {
  const packed = atob(document.getElementById("specs").textContent);
  const stream = new Blob([Uint8Array.from(packed, letter => letter.charCodeAt(0))]).stream();
  const text = await new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
  JSON.parse(text).forEach((spec, i) => { charts[i].spec = spec; });
})();

function off(chart) {
  const boxes = chart.run.querySelectorAll(".shown input:not(:checked)");
  return [...boxes].map(box => box.value);
}

async function draw(chart, light = !dark.matches) {
  const width = chart.host.clientWidth;
  if (!width) return;
  chart.drawn = true;
  await specs;
  const theme = themes[light ? "light" : "dark"];
  const beside = 70;  // names of rows, behind which a legend begins
  const each = 6.2 * chart.spec.usermeta.letters + 34;
  const columns = Math.max(1, Math.floor((width - beside) / each));
  const config = { ...theme, legend: { ...theme.legend, columns, labelLimit: 0.65 * width } };
  chart.result?.finalize();
  chart.result = await vegaEmbed(chart.host, chart.spec, {
    config, renderer: "svg", downloadFileName: chart.link.download.replace(/\.csv$/, ""),
    actions: { export: true, source: false, compiled: false, editor: false },
    tooltip: { theme: light ? "light" : "dark" },
  });
  if (off(chart).length) show(chart);
}

const switched = chart => chart.spec.params?.some(each => each.name === "off");

function show(chart) {
  if (switched(chart)) chart.result?.view.signal("off", off(chart)).runAsync();
}

function redraw() {
  charts.filter(chart => chart.drawn).forEach(chart => draw(chart));
}

const near = new IntersectionObserver(entries => entries.forEach(entry => {
  const chart = charts.find(each => each.host === entry.target);
  if (entry.isIntersecting && !chart.drawn) draw(chart);
}), { rootMargin: "400px" });
charts.forEach(chart => near.observe(chart.host));
dark.addEventListener("change", redraw);
let later, wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === wide) return;
  wide = innerWidth;
  clearTimeout(later);
  later = setTimeout(redraw, 150);
});

// A chart's CSV as rows.
function read(chart) {
  const rows = [[]];
  for (const [, cell, end] of chart.spec.data.values.matchAll(/("(?:[^"]|"")*"|[^,\n]*)(,|\n)/g)) {
    rows.at(-1).push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell);
    if (end === "\n") rows.push([]);
  }
  const [names, ...cells] = rows.slice(0, -1);
  return cells.map(row => Object.fromEntries(row.map((text, i) => [names[i], text])));
}

// The names that a run compares can be switched off in its charts.
function offer(run) {
  const known = JSON.parse(run.dataset.compared), names = Object.entries(known);
  const all = charts.filter(chart => chart.run === run);
  const own = all.filter(chart => !chart.figure.closest(".beside"));
  const first = own.find(chart => switched(chart) && read(chart).some(row => row.of in known));
  if (names.length < 2 || !first) return;
  const box = document.createElement("fieldset");
  box.className = "shown";
  const legend = document.createElement("legend");
  legend.textContent = "In the charts:";
  box.append(legend);
  const controls = all.some(chart => /,control(\r?\n|$)/.test(chart.spec.data?.values));
  for (const [name, colour] of [...names, ...(controls ? [["controls", ""]] : [])]) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, { type: "checkbox", checked: true, value: name });
    const mark = document.createElement("i");
    mark.style.background = colour;
    label.append(input, ...(colour ? [mark] : []), name);
    box.append(label);
  }
  box.addEventListener("change", () => all.forEach(show));
  let place = first.figure;
  while (place.parentElement !== run) place = place.parentElement;
  place.before(box);
}
specs.then(() => document.querySelectorAll(".run").forEach(offer));

// What the pointer tells of a chart, as rows: for a table and for CSV.
function told(chart) {
  const titles = {};
  JSON.stringify(chart.spec, (key, value) => {
    if (key === "tooltip" && Array.isArray(value))
      value.forEach(each => { titles[each.field] = each.title; });
    return value;
  });
  const rows = read(chart);
  const fields = Object.keys(titles).filter(field => rows.some(row => row[field]));
  return [fields.map(field => titles[field]),
          ...rows.map(row => fields.map(field => row[field] ?? ""))];
}

for (const chart of charts) {
  chart.link.addEventListener("click", () => {
    if (!chart.spec) return;
    const cell = text => /[",\n]/.test(text) ? `"${String(text).replaceAll('"', '""')}"` : text;
    const text = told(chart).map(row => row.map(cell).join(",")).join("\n") + "\n";
    chart.link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`;
  });
  const values = chart.figure.querySelector(".values");
  values.addEventListener("toggle", async () => {
    await specs;
    if (!values.open || values.querySelector("table")) return;
    const [heads, ...rows] = told(chart), wide = document.createElement("div");
    Object.assign(wide, { className: "wide", tabIndex: 0 });
    const table = wide.appendChild(document.createElement("table"));
    const head = table.createTHead().insertRow(), body = table.createTBody();
    heads.forEach(text => { head.appendChild(document.createElement("th")).textContent = text; });
    rows.forEach(row => {
      const line = body.insertRow();
      row.forEach(text => { line.insertCell().textContent = text; });
    });
    values.append(wide);
  });
}

// On paper everything is unfolded, in light colours.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open], .values, .vega-embed details)")];
  folded.forEach(item => { item.open = true; });
  charts.filter(chart => !chart.drawn || dark.matches).forEach(chart => draw(chart, true));
});
addEventListener("afterprint", () => {
  folded.forEach(item => { item.open = false; });
  if (dark.matches) redraw();
});
