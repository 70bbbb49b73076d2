"use strict";
// An element of the page, for the scripts behind this one.
globalThis.hopscopeElement = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// Draws every chart of the page from the specification that lies beside it, then marks the document as ready.
(() => {
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    ast: true,  // expressions are interpreted: the page's policy lets nothing become a script
    actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
  };

  // A single view fills its card and follows the window; facets keep their size and lose columns instead.
  function fit(spec, room) {
    const encoded = spec.encoding || {};
    const faceted = spec.facet || encoded.facet || encoded.row || encoded.column;
    const joined = spec.concat || spec.hconcat || spec.vconcat || spec.repeat;
    if (!faceted && !joined && typeof spec.width === "number") {
      return { ...spec, width: "container", autosize: { type: "fit-x", contains: "padding" } };
    }
    if (encoded.facet && encoded.facet.columns && typeof spec.width === "number") {
      const columns = columnsThatFit(encoded.facet.columns, spec.width, room);
      return { ...spec, encoding: { ...encoded, facet: { ...encoded.facet, columns } } };
    }
    if (spec.facet && spec.columns && spec.spec && typeof spec.spec.width === "number") {
      return { ...spec, columns: columnsThatFit(spec.columns, spec.spec.width, room) };
    }
    return spec;
  }

  // On a phone a legend at the side would take a third of the chart.
  function legendBelow(spec, room) {
    if (room > 480) return spec;
    const legend = { ...spec.config.legend, orient: "bottom", columns: 4 };
    return { ...spec, config: { ...spec.config, legend } };
  }

  function columnsThatFit(wanted, width, room) {
    const gap = 20;
    const axesAndLegend = room > 480 ? 120 : 60;
    const possible = Math.floor((room - axesAndLegend + gap) / (width + gap));
    return Math.max(1, Math.min(wanted, possible));
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

  async function draw(chart) {
    const written = JSON.parse(document.getElementById(chart.dataset.spec).textContent);
    const described = { ...tabled(written), description: chart.getAttribute("aria-label") };
    const spec = legendBelow(fit(described, chart.clientWidth), chart.clientWidth);
    try {
      await vegaEmbed(chart, spec, { ...options, downloadFileName: chart.dataset.spec.replace(/^run-\d+-spec-/, "") });
      // The drawing carries the description from here on; twice would be read out twice.
      chart.removeAttribute("aria-label");
      chart.removeAttribute("role");
    } catch (error) {
      chart.textContent = "This chart could not be drawn: " + error.message;
      throw error;
    }
  }

  async function start() {
    const charts = [...document.querySelectorAll(".chart[data-spec]")];
    const drawn = await Promise.allSettled(charts.map(draw));
    document.documentElement.dataset.charts = "ready";
    for (const result of drawn) {
      if (result.status === "rejected") console.error(result.reason);
    }
  }

  // Paper cannot unfold anything: print with every protocol and configuration open.
  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:not(.vega-embed details)")) each.open = true;
  });

  // On a narrow screen the contents would push the story below the first screen.
  if (window.matchMedia("(max-width: 72rem)").matches) document.querySelector(".contents details").open = false;

  start();
})();
