"use strict";
// Draws the charts of the page from the specifications that lie beside them, those of the first screen first (page.js).
(() => {
  const element = globalThis.hopscopeElement;
  const colours = JSON.parse(document.getElementById("chart-colours").textContent);
  const NARROW = 480;
  const AXIS = 110;  // most of a narrow chart that the labels of its rows take
  const LEAST = 130;  // width of one of several small charts
  const PLOT = 180;  // least width of what a chart draws beside the labels of its rows
  const SMALLEST = 0.8;  // of the size in which a chart is written
  const views = new Map();

  // Specifications.

  // The rows of a CSV, as objects of texts.  Vega reads it by making a function, which the page's policy forbids.
  function rowsOf(text) {
    const rows = [];
    let row = [];
    for (const found of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|\r|$)/g)) {
      if (found.index === text.length && !row.length) break;
      row.push(found[1] === undefined ? found[2] : found[1].replaceAll('""', '"'));
      if (found[3] === ",") continue;
      rows.push(row);
      row = [];
    }
    const [names, ...others] = rows;
    return others.map((cells) => Object.fromEntries(names.map((name, place) => [name, cells[place] ?? ""])));
  }

  // The specification with the rows of every CSV in it in place of its text.
  function tabled(node) {
    if (Array.isArray(node)) return node.map(tabled);
    if (node === null || typeof node !== "object") return node;
    if (typeof node.values === "string" && node.format && node.format.type === "csv") {
      return { ...node, values: rowsOf(node.values), format: { ...node.format, type: "json" } };
    }
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, tabled(value)]));
  }

  // Colours become variables of the page's style.  What depends on the data is written on cells, which keep theirs.
  function themed(node) {
    if (typeof node === "string") return colours[node.toLowerCase()] || node;
    if (Array.isArray(node)) return node.map(themed);
    if (node === null || typeof node !== "object" || node.test !== undefined || node.format !== undefined) return node;
    return Object.fromEntries(
      Object.entries(node).map(([key, value]) => [key, key === "data" || key === "datasets" ? value : themed(value)]));
  }

  // Charts take the width of the page.  Small charts lose columns where they do not fit beside each other; those of the
  // first chart of the page stand in one row where they can.
  function fit(spec, room, first) {
    const encoded = spec.encoding || {};
    if (encoded.facet && encoded.facet.columns && typeof spec.width === "number") {
      const panels = first ? panelsOf(spec, encoded.facet.field) : 0;
      const [columns, width] = columnsThatFit(encoded.facet.columns, spec.width, room, panels);
      return { ...spec, width, encoding: { ...encoded, facet: { ...encoded.facet, columns } } };
    }
    const alone = spec.facet && spec.facet.field && panelsOf(spec, spec.facet.field) === 1;
    if (spec.facet && (spec.columns || alone) && spec.spec && typeof spec.spec.width === "number") {
      const panels = first ? panelsOf(spec, spec.facet.field) : 0;
      const [columns, width] = columnsThatFit(spec.columns || 1, spec.spec.width, room, panels);
      return { ...spec, columns, spec: { ...spec.spec, width } };
    }
    if (spec.hconcat && room <= NARROW) {
      const { hconcat, ...rest } = spec;
      return { ...rest, vconcat: hconcat.map((each) => fit(each, room)) };
    }
    const faceted = spec.facet || encoded.row || encoded.column || spec.concat || spec.hconcat || spec.vconcat || spec.repeat;
    if (!faceted && typeof spec.width === "number") {
      const placed = along(spec, spec.width);
      return { ...placed, width: room, autosize: { type: "fit-x", contains: "padding" } };
    }
    return spec;
  }

  // Small charts that are less wide; nothing where they fit.  The labels of rows may take more than was kept for them.
  function narrowed(spec, excess) {
    const facet = (spec.encoding || {}).facet;
    const columns = facet ? facet.columns : spec.facet && spec.columns;
    if (!columns || excess <= 0) return null;
    const width = Math.max(LEAST, (facet ? spec : spec.spec).width - Math.ceil(excess / columns));
    return facet ? { ...spec, width } : { ...spec, spec: { ...spec.spec, width } };
  }

  // A chart whose rows have such long labels that little is left beside them is wider than the page; nothing for others.
  function widened(spec, view) {
    const plot = (spec.autosize || {}).type === "fit-x" ? view.width() : PLOT;
    return plot < PLOT ? { ...spec, width: Math.ceil(spec.width + PLOT - plot) } : null;
  }

  // What stood at the right edge of the written width stands at that of the drawn one.
  function along(node, width) {
    if (Array.isArray(node)) return node.map((each) => along(each, width));
    if (node === null || typeof node !== "object") return node;
    return Object.fromEntries(Object.entries(node).map(([key, value]) =>
      [key, key === "x" && value && value.value === width ? { value: "width" } : key === "data" ? value : along(value, width)]));
  }

  const panelsOf = (spec, field) => new Set(((spec.data || {}).values || []).map((row) => row[field])).size;

  function columnsThatFit(wanted, width, room, panels) {
    const gap = 24;
    const beside = room > NARROW ? 96 : 66;
    const fitting = (each) => Math.max(1, Math.floor((room - beside + gap) / (each + gap)));
    const columns = panels > wanted && fitting(LEAST) >= panels ? panels : Math.min(wanted, fitting(Math.min(width, 260)));
    return [columns, Math.floor((room - beside - gap * (columns - 1)) / columns)];
  }

  // Legends at the side would take a third of a phone; those above the chart break into columns that fit.
  function withLegends(spec, room, plot) {
    const rows = longest(spec);
    const narrow = room <= NARROW;
    const walk = (node) => {
      if (Array.isArray(node)) return node.map(walk);
      if (node === null || typeof node !== "object") return node;
      const changed = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, key === "data" ? value : walk(value)]));
      // Long enough to show the dash of its line.
      if (changed.legend && changed.legend.symbolType === "stroke") changed.legend = { symbolSize: 650, ...changed.legend };
      // Slanted labels above a chart would reach over the edge of the page.
      if (narrow && changed.labelAngle < 0 && changed.labelAngle > -90) changed.labelAngle = -90;
      const discrete = changed.field && changed.legend !== null && (changed.type === "nominal" || changed.type === "ordinal");
      const legend = changed.legend || {};
      if (discrete && changed.type && (narrow || legend.orient === "top" || legend.orient === "bottom")) {
        const known = changed.scale && Array.isArray(changed.scale.domain) ? changed.scale.domain : rows[changed.field] || [];
        const widest = Math.max(4, ...known.map((each) => String(each).length));
        const free = plot || (narrow ? room - AXIS : room);  // a legend begins where the chart does, beside the labels of its rows
        const columns = Math.max(1, Math.floor(free / (widest * 6.6 + (legend.symbolType === "stroke" ? 52 : 34))));
        const orient = narrow && !legend.orient ? "bottom" : legend.orient;
        if (known.length > columns || orient !== legend.orient) {
          changed.legend = { ...legend, columns, ...(orient ? { orient } : {}), ...(narrow ? { labelLimit: room - 40 } : {}) };
        }
      }
      return changed;
    };
    const own = Object.fromEntries(Object.entries(spec).map(([key, value]) =>
      [key, key === "data" || key === "config" ? value : walk(value)]));
    if (!narrow) return own;
    const config = own.config || {};
    const stacked = { direction: "vertical", anchor: "start" };
    return { ...own, config: { ...config,
      legend: { ...config.legend, orient: "bottom", layout: { bottom: stacked, top: stacked } },
      axis: { ...config.axis, labelLimit: AXIS, titleLimit: Math.max(180, room - 60) },
      axisX: { ...config.axisX, labelOverlap: true, titleAnchor: "end", titleLimit: room - 20 },
      header: { ...config.header, labelLimit: room - 40 } } };
  }

  // Points that differ in colour differ in shape too: greyscale has no colours.  Where shapes tell something, they stay.
  const SHAPES = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down"];

  function shaped(spec) {
    const walk = (node) => {
      if (Array.isArray(node)) return node.map(walk);
      if (node === null || typeof node !== "object") return node;
      const kind = node.mark && (node.mark.type || node.mark), encoded = node.encoding || {};
      const by = encoded.color || encoded.fill || {};
      const several = by.field && by.type === "nominal" && (!by.scale || !by.scale.domain || by.scale.domain.length > 1);
      const changed = Object.fromEntries(Object.entries(node).map(([key, value]) =>
        [key, key === "data" || key === "config" || key === "encoding" ? value : walk(value)]));
      if (kind !== "point" || node.mark.shape || !several) return changed;
      const { axis, sort, ...same } = by, domain = by.scale && by.scale.domain;
      const scale = domain ? { domain, range: domain.map((_, at) => SHAPES[at % SHAPES.length]) } : { range: SHAPES };
      return { ...changed, encoding: { ...encoded, shape: { ...same, scale } } };
    };
    return JSON.stringify({ ...spec, data: null }).includes('"shape":{') ? spec : walk(spec);
  }

  // A title beside or under a small chart stands in several lines: in one it would be cut, or run into the chart below.
  function titled(node, room, height) {
    if (Array.isArray(node)) return node.map((each) => titled(each, room, height));
    if (node === null || typeof node !== "object") return node;
    const own = typeof node.height === "number" ? node.height : height;
    const rooms = { x: room - 40, y: own };
    return Object.fromEntries(Object.entries(node).map(([key, value]) => {
      if (rooms[key] && value && typeof value.title === "string") return [key, { ...value, title: lines(value.title, rooms[key]) }];
      return [key, key === "data" || key === "config" ? value : titled(value, room, own)];
    }));
  }

  function lines(title, room) {
    const count = Math.ceil((title.length * 7) / (room + 20));
    if (count < 2) return title;
    const cut = [""];
    for (const word of title.split(" ")) {
      const last = cut.length - 1;
      if (cut[last] && cut[last].length + word.length >= title.length / count + 2) cut.push(word);
      else cut[last] = `${cut[last]} ${word}`.trim();
    }
    return cut;
  }

  // A line would be described by its first point, and every point of it written out for that: the chart's words tell more.
  function unsaid(spec) {
    const { config = {} } = spec;
    return { ...spec, config: { ...config, line: { ...config.line, aria: false } } };
  }

  // Values of each text column, to know how long they are.
  function longest(spec) {
    const rows = spec.data && Array.isArray(spec.data.values) ? spec.data.values : [];
    const names = Object.keys(rows[0] || {});
    return Object.fromEntries(names.map((name) => [name, [...new Set(rows.map((row) => row[name]))].slice(0, 40)]));
  }

  const options = {
    mode: "vega-lite",
    actions: false,
    logLevel: 1,  // errors
    ast: true,  // expressions are interpreted: the page's policy lets nothing become a script
  };

  // Vega-Lite's warnings are for authors, and it has no switch for them: that a series has no numbers is no fault here.
  async function embedded(place, spec, more) {
    const { warn } = console;
    console.warn = () => {};
    try {
      return await vegaEmbed(place, spec, { ...options, ...more });
    } finally {
      console.warn = warn;
    }
  }

  const written = (chart) => JSON.parse(document.getElementById(chart.dataset.spec).textContent);

  // The room of a chart; one that is folded has the width of what it is folded into.
  function roomOf(chart) {
    let at = chart.parentElement;
    let taken = 0;
    while (at && !at.clientWidth) at = at.parentElement;
    if (at !== chart.parentElement) taken = 34;
    const style = getComputedStyle(at);
    return Math.floor(at.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - taken);
  }

  async function draw(chart) {
    const room = roomOf(chart);
    if (chart.dataset.room === String(room)) return;
    chart.dataset.room = room;
    const described = { ...tabled(written(chart)), description: chart.dataset.alt };
    const fitted = fit(described, room, Boolean(chart.closest(".masthead")));
    const show = (each, plot) => embedded(
      chart, themed(unsaid(withLegends(titled(shaped(each), room), room, plot))), { renderer: "svg", tooltip: showMark });
    try {
      if (views.has(chart)) views.get(chart).finalize();
      let made = await show(fitted);
      const smaller = narrowed(fitted, widthOf(chart) - room), wider = widened(fitted, made.view);
      if (smaller || wider) {
        made.finalize();
        made = await show(smaller || wider, wider ? PLOT : undefined);
      }
      views.set(chart, made);
      keepReadable(chart, room);
      chart.setAttribute("aria-label", chart.dataset.alt);
      for (const each of chart.querySelectorAll("[role=graphics-symbol]:not([aria-label])")) each.removeAttribute("role");
      // Vega describes groups of marks that it hides from readers: a description needs a role.
      for (const each of chart.querySelectorAll("[aria-roledescription]:not([role])")) each.removeAttribute("aria-roledescription");
      follow(chart, made.view);
      offer(chart);
    } catch (error) {
      chart.textContent = "This chart could not be drawn: " + error.message;
      throw error;
    }
  }

  const widthOf = (chart) => chart.querySelector("svg.marks").viewBox.baseVal.width;

  // What is much wider than the page is scrolled sideways: made to fit, its words would be too small to read.
  function keepReadable(chart, room) {
    const least = Math.round(SMALLEST * widthOf(chart));
    const scrolls = least > room;
    chart.querySelector("svg.marks").style.minWidth = scrolls ? `${least}px` : "";
    chart.classList.toggle("scroll", scrolls);
    if (scrolls) chart.tabIndex = 0;
    else chart.removeAttribute("tabindex");
  }

  // Hover: the nearest point of a line, or the mark under the pointer.

  const tip = element("div", { class: "tip", hidden: "" });
  const dot = element("div", { class: "tip-dot", hidden: "" });
  document.body.append(tip, dot);

  function show(value, x, y) {
    const rows = typeof value === "object" && value !== null ? Object.entries(value) : [["", value]];
    tip.replaceChildren(...rows.map(([name, text]) => element("div", {}, element("span", {}, name), " ", element("b", {}, String(text)))));
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    tip.style.left = Math.max(4, Math.min(x + 14, document.documentElement.clientWidth - width - 6)) + window.scrollX + "px";
    tip.style.top = (y + 18 + height > window.innerHeight ? y - height - 12 : y + 18) + window.scrollY + "px";
  }

  function hide() {
    tip.hidden = dot.hidden = true;
  }

  function showMark(handler, event, item, value) {
    if (item && item.mark && item.mark.marktype === "line") return;  // `follow` finds the right point of it
    if (value === null || value === undefined || value === "") return void (dot.hidden && hide());
    dot.hidden = true;
    show(value, event.clientX, event.clientY);
  }

  // Every point of every line, with its place in the drawing.
  function pointsOf(view) {
    const points = [];
    const walk = (mark, x, y) => {
      for (const item of mark.items || []) {
        if (mark.marktype === "group") for (const inner of item.items || []) walk(inner, x + (item.x || 0), y + (item.y || 0));
        else if (mark.marktype === "line" && item.tooltip && item.defined !== false) points.push([x + item.x, y + item.y, item]);
      }
    };
    walk(view.scenegraph().root, view.origin()[0], view.origin()[1]);
    return points;
  }

  function follow(chart, view) {
    const svg = chart.querySelector("svg");
    let points = null;
    view.addEventListener("pointerdown", () => { points = null; });
    svg.addEventListener("pointermove", (event) => {
      points = points || pointsOf(view);
      if (!points.length) return;
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width || 1;
      const [x, y] = [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
      let [best, least] = [null, 40 ** 2];
      for (const point of points) {
        const distance = (point[0] - x) ** 2 + (point[1] - y) ** 2;
        if (distance < least) [best, least] = [point, distance];
      }
      if (!best) return hide();
      dot.hidden = false;
      dot.style.left = box.left + best[0] * scale + window.scrollX + "px";
      dot.style.top = box.top + best[1] * scale + window.scrollY + "px";
      dot.style.borderColor = best[2].stroke;
      show(best[2].tooltip, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hide);
  }

  // Files: the figure in the light colours, at the size that its study gives it, and its data.

  function offer(chart) {
    if (chart.parentElement.querySelector(".save")) return;
    globalThis.hopscopeOffer(chart, chart.dataset.name, (kind) => {
      const spec = written(chart);
      return kind === "csv" ? globalThis.hopscopeCsv(spec.data.values) : drawing(tabled(spec), kind);
    });
  }

  async function drawing(spec, kind) {
    const { view } = await embedded(element("div"), spec, {});
    const address = await view.toImageURL(kind, 2);
    view.finalize();
    return address;
  }

  // Order.

  const attempt = (chart) => draw(chart).catch((error) => console.error(error));
  const folded = (chart) => Boolean(chart.closest("details:not([open])"));

  const redraw = (charts) => { hide(); for (const chart of charts) if (!folded(chart)) attempt(chart); };
  document.addEventListener("toggle", (event) => event.target.open && redraw(event.target.querySelectorAll(".chart[data-spec]")), true);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => redraw(document.querySelectorAll(".chart[data-spec]")), 150);
  });
  for (const chart of document.querySelectorAll(".chart[data-spec]")) globalThis.hopscopeLater(chart, () => attempt(chart));
})();
