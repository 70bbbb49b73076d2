"use strict";
// The attention map of one head on the example sequence, as an SVG: rows read, columns are read.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const CELLS = 300;
  const LEFT = 62, TOP = 6, UNDER = 74, SCALE = 16;
  // Colours are variables of the page's style: the map follows the theme, and paper, without being drawn again.
  const [INK, QUIET, PAPER, FRAME, RAMP, NAMED] = ["ink", "quiet", "paper", "frame", "ramp", "series-2"].map(role => `var(--chart-${role})`);
  let drawings = 0;

  function drawn(name, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function words(x, y, text, more = {}) {
    return drawn("text", { x, y, fill: INK, "font-size": 10, "text-anchor": "middle", ...more }, text);
  }

  function bytes(base64) {
    return Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
  }

  // Attention as opacity, a pixel for each cell: it lets the colour of the map through.
  function picture(pattern, size) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    const image = context.createImageData(size, size);
    for (let at = 0; at < size * size; at += 1) image.data[4 * at + 3] = pattern[at];
    context.putImageData(image, 0, 0);
    return canvas.toDataURL();
  }

  const cellsOf = tokens => CELLS / tokens.length;

  // Names of tokens beside rows and under columns, where there is room for them.
  function tokenNames(tokens, rows) {
    const cell = cellsOf(tokens);
    if (cell < 9) return [];
    const size = Math.min(11, 0.72 * cell);
    return tokens.flatMap((token, at) => {
      const weight = rows.includes(at) ? 700 : 400;
      const x = LEFT + (at + 0.5) * cell, y = TOP + (at + 0.5) * cell + 0.36 * size;
      const under = TOP + CELLS + 12;
      return [
        words(LEFT - 4, y, `${token.label} ${token.chain}`, { "font-size": size, "text-anchor": "end", "font-weight": weight }),
        words(x, under, token.label, { "font-size": size }),
        words(x, under + 11, token.chain, { "font-size": size }),
      ];
    });
  }

  // A short block has its roles one below the other; of more than there is room for, the first and the last.
  function blockWords(words, room, most) {
    const roles = words.split(", ");
    if (words.length * 4.6 <= room) return [words];
    return roles.length <= most ? roles : [`${roles[0]} …`, roles.at(-1)];
  }

  function groupNames(tokens, groups) {
    const cell = cellsOf(tokens), line = { stroke: QUIET, "stroke-width": 1 };
    return groups.flatMap(group => {
      const from = group.start * cell, to = (group.end + 1) * cell, middle = (from + to) / 2;
      const low = TOP + CELLS + 29, left = LEFT - 42;
      const below = blockWords(group.words, to - from, 3), beside = blockWords(group.words, to - from, 2);
      return [
        drawn("path", { d: `M${LEFT + from + 1} ${low}H${LEFT + to - 1}`, ...line }),
        ...below.map((text, n) => words(LEFT + middle, low + 11 + 10 * n, text, { "font-size": 9 })),
        drawn("path", { d: `M${left} ${TOP + from + 1}V${TOP + to - 1}`, ...line }),
        ...beside.map((text, n) => words(0, 0, text, {
          "font-size": 9, transform: `translate(${left - 4 - 10 * (beside.length - 1 - n)} ${TOP + middle}) rotate(-90)`,
        })),
      ];
    });
  }

  // Rows of other roles are veiled, cells that the rule names are outlined.
  function marks(tokens, path) {
    const cell = cellsOf(tokens);
    const veils = tokens.flatMap((_, at) => path.rows.includes(at) ? [] : [
      drawn("rect", { x: LEFT, y: TOP + at * cell, width: CELLS, height: cell, fill: PAPER, "fill-opacity": 0.62, class: "veil" }),
    ]);
    const outlines = path.cells.map(([row, key]) =>
      drawn("rect", {
        x: LEFT + key * cell + 0.6, y: TOP + row * cell + 0.6, width: cell - 1.2, height: cell - 1.2,
        fill: "none", stroke: NAMED, "stroke-width": Math.min(2, cell / 6), class: "named",
      }));
    return [...veils, ...outlines];
  }

  function scale(hasCells) {
    const y = TOP + CELLS + UNDER, width = 8;
    const steps = Array.from({ length: 11 }, (_, n) =>
      drawn("rect", { x: LEFT + 52 + n * width, y: y - 9, width, height: 9, fill: RAMP, "fill-opacity": n / 10, stroke: FRAME, "stroke-width": 0.4 }));
    const left = { "font-size": 10, "text-anchor": "start" };
    const named = [
      drawn("rect", { x: LEFT + 172, y: y - 9, width: 9, height: 9, fill: "none", stroke: NAMED, "stroke-width": 2 }),
      words(LEFT + 186, y, "named by the rule", left),
    ];
    return [words(LEFT - 8, y, "attention 0", left), ...steps, words(LEFT + 144, y, "1", left), ...(hasCells ? named : [])];
  }

  // pattern: numbers of 0 … 255, row by row.
  function map(tokens, groups, path, pattern) {
    const box = `0 0 ${LEFT + CELLS + 4} ${TOP + CELLS + UNDER + SCALE - 10}`;
    const said = `Attention of head ${path.head} on the example sequence. Rows of ${path.query} read ${path.reads}`;
    const mask = `path-map-${drawings += 1}`, cells = { x: LEFT, y: TOP, width: CELLS, height: CELLS };
    return drawn("svg", { viewBox: box, role: "img", "aria-label": said, "font-family": "Arial, Helvetica, sans-serif" },
      drawn("mask", { id: mask, style: "mask-type: alpha" },
        drawn("image", { ...cells, href: picture(pattern, tokens.length), preserveAspectRatio: "none", style: "image-rendering: pixelated" })),
      drawn("rect", { ...cells, fill: RAMP, mask: `url(#${mask})` }),
      ...marks(tokens, path),
      drawn("rect", { ...cells, fill: "none", stroke: FRAME, class: "map-frame" }),
      ...tokenNames(tokens, path.rows),
      ...groupNames(tokens, groups),
      ...scale(path.cells.length > 0),
    );
  }

  // Row and key under a pointer, or null.
  function cellAt(svg, event, count) {
    const box = svg.getBoundingClientRect(), unit = (LEFT + CELLS + 4) / box.width;
    const key = Math.floor(((event.clientX - box.left) * unit - LEFT) / (CELLS / count));
    const row = Math.floor(((event.clientY - box.top) * unit - TOP) / (CELLS / count));
    const inside = [row, key].every(at => at >= 0 && at < count);
    return inside ? { row, key } : null;
  }

  globalThis.hopscopeMap = { map, bytes, cellAt };
})();
