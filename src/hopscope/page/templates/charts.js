"use strict";
// Draws the charts of the page from the specifications that lie beside them, those of the first screen first (page.js).
(() => {
  const element = globalThis.hopscopeElement;
  const colours = JSON.parse(document.getElementById("chart-colours").textContent);
  const NARROW = 480, LEAST = 150, PLOT = 180; // widths: of a phone, of one of several small charts, of what a chart draws beside its labels
  const SMALLEST = 0.8; // of the size in which a chart is written
  const views = new Map();

  // Specifications.

  // A copy of a part of a specification in which `change` has seen every object, inner ones first; data stay.
  function walk(node, change) {
    if (Array.isArray(node)) return node.map(each => walk(each, change));
    if (node === null || typeof node !== "object") return node;
    const inner = Object.entries(node).map(([key, value]) => [key, key === "values" || key === "datasets" ? value : walk(value, change)]);
    return change(Object.fromEntries(inner));
  }

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
    return others.map(cells => Object.fromEntries(names.map((name, place) => [name, cells[place] ?? ""])));
  }

  const tabled = spec => walk(spec, node => (typeof node.values === "string" && node.format?.type === "csv"
    ? { ...node, values: rowsOf(node.values), format: { ...node.format, type: "json" } } : node));

  // Colours become variables of the page's style.  What depends on the data is written on cells, which keep theirs.
  function themed(node) {
    if (typeof node === "string") return colours[node.toLowerCase()] || node;
    if (Array.isArray(node)) return node.map(themed);
    if (node === null || typeof node !== "object" || node.test !== undefined || node.format !== undefined) return node;
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, key === "data" || key === "datasets" ? value : themed(value)]));
  }

  // Charts take the width of the page.  Small charts lose columns where they do not fit beside each other.
  function fit(spec, room) {
    const wide = spec.spec && typeof spec.spec.width === "number" ? spec.spec.width : 0;
    if (spec.facet && wide) {
      const panels = new Set((spec.data?.values || []).map(row => row[spec.facet.field])).size;
      const beside = room > NARROW ? 96 : 66, gap = 24, most = spec.columns || 1;
      const columns = Math.max(1, Math.min(most, panels || 1, Math.floor((room - beside + gap) / (Math.min(wide, 240) + gap))));
      const each = Math.floor((room - beside - gap * (columns - 1)) / columns);
      return { ...spec, columns, spec: { ...spec.spec, width: spec.resolve?.scale?.x === "independent" ? Math.min(wide, each) : each } };
    }
    const several = spec.facet || spec.concat || spec.hconcat || spec.vconcat || spec.repeat || spec.encoding?.row || spec.encoding?.column || spec.encoding?.facet;
    if (several || typeof spec.width !== "number") return spec;
    // Cells keep their size: where there is room, and where what is written on them would not fit.
    const cells = spec.params?.some(each => each.name === "middle");
    return (spec.width < room - 160 ? spec.width < 420 : cells) ? spec : { ...spec, width: room, autosize: { type: "fit-x", contains: "padding" } };
  }

  // Small charts that are less wide, or a chart whose labels leave it too little; nothing where all fits.
  function mended(spec, excess, view) {
    if (spec.facet && spec.columns && excess > 0) {
      return { ...spec, spec: { ...spec.spec, width: Math.max(LEAST, spec.spec.width - Math.ceil(excess / spec.columns)) } };
    }
    const plot = spec.autosize?.type === "fit-x" ? view.width() : PLOT;
    return plot < PLOT ? { ...spec, width: Math.ceil(spec.width + PLOT - plot) } : null;
  }

  // Legends break into columns that fit, and stand below on a phone; long titles stand in several lines.
  function arranged(spec, room) {
    const narrow = room <= NARROW;
    const changed = walk(spec, node => {
      const made = { ...node }, domain = node.scale?.domain;
      if (node.field && node.type === "nominal" && node.legend && Array.isArray(domain)) {
        const widest = Math.max(4, ...domain.map(each => String(each).length)), line = node.legend.symbolType === "stroke";
        const columns = Math.max(1, Math.floor((narrow ? room - 90 : room) / (widest * 6.8 + (line ? 52 : 34))));
        made.legend = { ...(line ? { symbolSize: 650 } : {}), ...node.legend, ...(domain.length > columns ? { columns } : {}) };
      }
      if (narrow && node.labelAngle < 0 && node.labelAngle > -90) made.labelAngle = -90; // slanted ones reach over the edge
      return made;
    });
    // A line would be described by its first point, and every point of it written out for that: the words tell more.
    const config = { ...changed.config, line: { ...changed.config?.line, aria: false } };
    if (!narrow) return { ...changed, config };
    const stacked = { direction: "vertical", anchor: "start" };
    return { ...changed, config: { ...config,
      legend: { ...config.legend, orient: "bottom", labelLimit: room - 40, layout: { bottom: stacked, top: stacked } },
      axis: { ...config.axis, labelLimit: 130, titleLimit: Math.max(180, room - 60) },
      axisX: { ...config.axisX, labelOverlap: true, titleLimit: room - 20 },
      header: { ...config.header, labelLimit: room - 40 } } };
  }

  const options = {
    mode: "vega-lite",
    actions: false,
    logLevel: 1, // errors
    ast: true, // expressions are interpreted: the page's policy lets nothing become a script
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

  const written = chart => JSON.parse(document.getElementById(chart.dataset.spec).textContent);
  const widthOf = chart => chart.querySelector("svg.marks").viewBox.baseVal.width;

  // The room of a chart; one that is folded has the width of what it is folded into.
  function roomOf(chart) {
    let at = chart.parentElement;
    while (at && !at.clientWidth) at = at.parentElement;
    const style = getComputedStyle(at), taken = at === chart.parentElement ? 0 : 34;
    return Math.floor(at.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - taken);
  }

  async function draw(chart) {
    const room = roomOf(chart), alt = chart.getAttribute("aria-label");
    if (chart.dataset.room === String(room)) return;
    chart.dataset.room = room;
    const fitted = fit({ ...tabled(written(chart)), description: alt }, room);
    const show = each => embedded(chart, themed(arranged(each, room)), { renderer: "svg", tooltip: showMark });
    try {
      views.get(chart)?.finalize();
      let made = await show(fitted);
      const better = mended(fitted, widthOf(chart) - room, made.view);
      if (better) {
        made.finalize();
        made = await show(better);
      }
      views.set(chart, made);
      keepReadable(chart, room);
      chart.setAttribute("aria-label", alt);
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

  // What is much wider than the page is scrolled sideways: made to fit, its words would be too small to read.
  function keepReadable(chart, room) {
    const least = Math.round(SMALLEST * widthOf(chart)), scrolls = least > room;
    chart.querySelector("svg.marks").style.minWidth = scrolls ? `${least}px` : "";
    chart.classList.toggle("scroll", scrolls);
    if (scrolls) chart.tabIndex = 0;
    else chart.removeAttribute("tabindex");
  }

  // Hover: the nearest point of a line, or the mark under the pointer.

  const tip = element("div", { class: "tip", hidden: "" }), dot = element("div", { class: "tip-dot", hidden: "" });
  document.body.append(tip, dot);

  function show(value, x, y) {
    const rows = typeof value === "object" && value !== null ? Object.entries(value) : [["", value]];
    tip.replaceChildren(...rows.map(([name, text]) => element("div", {}, element("span", {}, name), " ", element("b", {}, String(text)))));
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    tip.style.left = Math.max(4, Math.min(x + 14, document.documentElement.clientWidth - width - 6)) + window.scrollX + "px";
    tip.style.top = (y + 18 + height > window.innerHeight ? y - height - 12 : y + 18) + window.scrollY + "px";
  }

  const hide = () => { tip.hidden = dot.hidden = true; };

  function showMark(handler, event, item, value) {
    if (item && item.mark && item.mark.marktype === "line") return; // `follow` finds the right point of it
    if (value === null || value === undefined || value === "") return void (dot.hidden && hide());
    dot.hidden = true;
    show(value, event.clientX, event.clientY);
  }

  // Every point of every line, with its place in the drawing.
  function pointsOf(view) {
    const points = [];
    const collect = (mark, x, y) => {
      for (const item of mark.items || []) {
        if (mark.marktype === "group") for (const inner of item.items || []) collect(inner, x + (item.x || 0), y + (item.y || 0));
        else if (mark.marktype === "line" && item.tooltip && item.defined !== false) points.push([x + item.x, y + item.y, item]);
      }
    };
    collect(view.scenegraph().root, view.origin()[0], view.origin()[1]);
    return points;
  }

  function follow(chart, view) {
    const svg = chart.querySelector("svg");
    let points = null;
    svg.addEventListener("pointermove", event => {
      points = points || pointsOf(view);
      if (!points.length) return;
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width || 1;
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
    globalThis.hopscopeOffer(chart, chart.dataset.name, async kind => {
      const spec = written(chart);
      if (kind === "csv") return globalThis.hopscopeCsv(spec.data.values);
      const { view } = await embedded(element("div"), tabled(spec), {});
      const address = await view.toImageURL(kind, 2);
      view.finalize();
      return address;
    });
  }

  // Order.

  const attempt = chart => draw(chart).catch(error => console.error(error));
  const redraw = charts => { hide(); for (const chart of charts) if (!chart.closest("details:not([open])")) attempt(chart); };
  document.addEventListener("toggle", event => event.target.open && redraw(event.target.querySelectorAll(".chart[data-spec]")), true);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => redraw(document.querySelectorAll(".chart[data-spec]")), 150);
  });
  for (const chart of document.querySelectorAll(".chart[data-spec]")) globalThis.hopscopeLater(chart, () => attempt(chart));
})();
