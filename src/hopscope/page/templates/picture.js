"use strict";
// A circuit as a picture: which rows of which heads read what, from the embedding (bottom) to the readout (top).
// Columns are kinds of rows, bands are layers; layers in which nothing is read are folded.  A path goes up from the column
// that it reads, along a lane of its own, and up to the column of its rows.  Colours are variables of the page's style.
globalThis.hopscopePicture = (() => {
  const THINNEST = 1.4, THICKEST = 9, CASING = 3; // width of a line without attention, with all of it, and of the paper under it
  const GUTTER = 64, COLUMN = 84, RIGHT = 12; // room for names of layers, least width of a column, room behind the last
  const TOP = 40, FOOT = 50, IDLE = 18, ENDS = 22; // of the picture; of folded layers; below and above the lanes
  const LANE = 23, TAG = 17, SLOT = 11, BOW = 34, TURN = 9;
  const FONT = "Arial, Helvetica, DejaVu Sans, sans-serif";
  const RULES = {
    previous: "the token just before", pair_mate: "the other token of the pair", same_symbol: "the other token with the same symbol",
    own_chain: "on its own chain", over_role: "all of them equally, by position", identity: "the row itself",
    mean_map: "fixed positions (the head’s mean map)", learned: "tokens that no rule names", history: "each by the head’s own mean weight",
  };
  const SKILLS = { value: 0, elimination: 0, recall: 1, x: 0, y: 1 }; // names without a number, in the order of charts

  const n = value => String(Math.round(100 * value) / 100);
  const escaped = words => String(words).replace(/[&<>"]/g, sign => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
  const colour = role => `var(--chart-${role})`;
  const sum = values => values.reduce((all, each) => all + each, 0);

  // Words.

  const small = digits => digits.replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit]);
  const symbol = name => name.replace(/^(?:x_?|step_)?(\d+)$/, (_, number) => `x${small(number)}`);
  const headName = path => `${path.layer}.${path.head}`;
  const ruleWords = rule => {
    const [, hops] = /^hop_(\d+)$/.exec(rule) ?? [];
    return hops ? `${hops} hop${hops === "1" ? "" : "s"} along its chain` : RULES[rule.split(" by ")[0]] ?? rule.replaceAll("_", " ");
  };
  // What a path carries: symbols in their order, then the rest.
  const carried = path => [...path.carries].sort((a, b) => Number(b.startsWith("x_")) - Number(a.startsWith("x_")) || a.localeCompare(b, "en", { numeric: true }));
  // What a path reads, with the rule: `second 1 (1 hop along its chain)`.
  const readsWords = path => path.targets.map(({ words, rule, share }) =>
    `${path.targets.length > 1 ? `${Math.round(100 * share)} % ` : ""}${words ? `${words} (${ruleWords(rule)})` : ruleWords(rule)}`).join(" and ") || ruleWords(path.rule);
  // One use of a path: `readout`, or `keys of 4.1 (query)`; in short `4.1 K`.
  const useWords = (use, short = false) => (use.layer === null ? "readout"
    : short ? `${headName(use)} ${use.part ?? ""}`.trim() : `${{ Q: "queries", K: "keys", V: "values" }[use.part] ?? use.part} of ${headName(use)} (${use.rows})`);

  // Role → what its token holds in the worked example: on the chain of the row that is asked last.
  function letters(circuit) {
    const chain = circuit.tokens.filter(token => circuit.readout.includes(token.role)).at(-1)?.chain ?? -1, found = new Map();
    for (const role of circuit.columns) {
      const every = circuit.tokens.filter(token => token.role === role), own = every.filter(token => token.chain === chain);
      if (every.length) found.set(role, (own.length ? own : every).at(-1).label);
    }
    return found;
  }

  // What a path does in the worked example, in one sentence.
  function stepWords(circuit, path) {
    const held = letters(circuit), named = words => (held.has(words) ? `${words} (here ${held.get(words)})` : words);
    const read = path.targets.map(each => named(each.words)).join(" and ") || ruleWords(path.rule);
    return `Layer ${path.layer}, head ${headName(path)}: ${named(path.query)} reads ${read}.`;
  }

  // Where everything stands.

  function columnsOf(circuit, target, query) {
    const words = target.words.replace(/^all /, "");
    if (words === "itself") return [query];
    // A kind, such as all y, stands for every role that begins with it.
    const found = circuit.columns.filter(each => each === words || (target.every && each.startsWith(`${words} `)));
    return found.length ? found : circuit.columns.filter(each => words.endsWith(`(${each})`));
  }

  // Numbers of the paths that can be drawn: those that read columns which can be named.
  const drawn = circuit => circuit.paths.flatMap((path, at) =>
    (path.targets.length && path.targets.every(each => columnsOf(circuit, each, path.query).length) ? [at] : []));
  const sourcesOf = (circuit, path) => path.targets.flatMap(each => columnsOf(circuit, each, path.query));

  function used(circuit) {
    const paths = drawn(circuit).map(at => circuit.paths[at]);
    const names = new Set([...circuit.readout, ...paths.flatMap(path => [path.query, ...sourcesOf(circuit, path)])]);
    const found = circuit.columns.filter(name => names.has(name));
    return found.length ? found : circuit.columns;
  }

  // About how wide words are in a sans-serif face; a little too wide rather than too narrow.
  const textWidth = (words, size = 11.5) => size * sum([...words].map(sign => (/[.,:;il'’|·]/.test(sign) ? 0.35 : /[₀-₉ ]/.test(sign) ? 0.46 : /\p{Lu}/u.test(sign) ? 0.76 : 0.64)));
  const signsOf = path => carried(path).map(name => (name === "position" ? "p" : symbol(name))).join(" ");
  const tagWidth = path => 1.1 * textWidth(headName(path)) + (signsOf(path) ? textWidth(signsOf(path)) + 4 : 0) + 12;
  const slot = (count, at) => Math.min(SLOT, (COLUMN - 20) / Math.max(1, count - 1)) * (at - (count - 1) / 2);

  // The edges of each lane of a layer, from the top: as few lanes as the order of the edges allows.
  function lanesOf(edges, width) {
    const order = (a, b) => { const at = a.findIndex((each, place) => each !== b[place]); return at < 0 ? 0 : a[at] - b[at]; };
    for (const edge of edges) {
      const into = edges.filter(each => each.query === edge.query).sort((a, b) => order([...a.sources, a.path], [...b.sources, b.path]));
      edge.end = edge.query + slot(into.length, into.indexOf(edge));
      edge.starts = edge.sources.map(source => {
        const out = edges.filter(each => each.sources.includes(source)).sort((a, b) => order([a.query, a.path], [b.query, b.path]));
        return source + slot(out.length, out.indexOf(edge));
      });
    }
    // Of edges that go the same way, those that do not cross.
    const place = ({ starts: [start], end }) => (start <= end ? [1, start, end] : [2, -start, -end]), lanes = [];
    for (const edge of [...edges].sort((a, b) => order(place(a), place(b)))) {
      const half = edge.width / 2 + 3, ends = [...edge.starts, edge.end], bow = edge.sources.length === 1 && edge.sources[0] === edge.query ? BOW : 0;
      edge.tag = Math.max(GUTTER - 8 + half, Math.min((Math.min(...ends) + Math.max(...ends)) / 2 + bow, width - 5 - half));
      [edge.left, edge.right, edge.bow] = [Math.min(...ends, edge.tag - half), Math.max(...ends, edge.tag + half), bow];
      const at = lanes.findLastIndex(lane => lane.some(other => edge.left < other.right && other.left < edge.right)) + 1;
      (lanes[at] ??= []).push(edge);
    }
    return lanes;
  }

  function bandsOf(circuit, x, width) {
    const bands = [], every = drawn(circuit);
    for (let layer = 0; layer < circuit.layers; layer += 1) {
      const edges = every.filter(at => circuit.paths[at].layer === layer).map(at => {
        const path = circuit.paths[at];
        return { path: at, sources: sourcesOf(circuit, path).map(name => x.get(name)), query: x.get(path.query), width: tagWidth(path) };
      });
      if (edges.length || !bands.length || bands.at(-1).lanes.length) bands.push({ first: layer, last: layer, lanes: lanesOf(edges, width) });
      else bands.at(-1).last = layer;
    }
    return bands;
  }

  // Drawing.

  const text = (x, y, words, { fill = colour("ink"), size = 11.5, weight = 400, anchor = "middle" } = {}) => (words
    ? `<text x="${n(x)}" y="${n(y)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}">${escaped(words)}</text>` : "");
  const box = (x, y, wide, tall, fill, more = "") => `<rect x="${n(x)}" y="${n(y)}" width="${n(wide)}" height="${n(tall)}" fill="${fill}" ${more}/>`;
  const way = (d, stroke, width, more = "") => `<path d="${d}" fill="none" stroke="${stroke}" stroke-width="${n(width)}" ${more}/>`;
  const svg = (name, wide, tall, title, parts, more = "") => `<svg class="${name}" xmlns="http://www.w3.org/2000/svg" role="img" font-family="${FONT}" fill="${colour("ink")}" `
    + `viewBox="0 0 ${n(wide)} ${n(tall)}" ${more}><title>${escaped(title)}</title>${parts.join("")}</svg>`;

  const edgeWidth = attention => THINNEST + (THICKEST - THINNEST) * Math.min(1, attention);
  // Colour of what is carried: for x_k that of x_k on every chart.
  function symbolColour(name) {
    const [, number] = /(?:^|[^a-z])(?:x|step|hop|loss)?[ _]?(\d+)$/.exec(name) ?? [], place = SKILLS[name] ?? number;
    return place === undefined ? colour(name.endsWith("position") ? "quiet" : "idle") : colour(`series-${(Number(place) % 8) + 1}`);
  }
  // One colour for a path where there is room for one only: of the last symbol that it carries.
  const pathColour = path => symbolColour(carried(path).filter(name => !name.endsWith("position")).at(-1) ?? (path.carries.length ? "position" : ""));
  // Colour and dashes: one thing is one line (dotted for position), several take turns.
  function lanesFor(brings) {
    if (!brings.length) return [[colour("idle"), ' stroke-dasharray="6 4"']];
    if (brings.length === 1) return [[symbolColour(brings[0]), brings[0].endsWith("position") ? ' stroke-dasharray="2 3"' : ""]];
    return brings.map((name, at) => [symbolColour(name), ` stroke-dasharray="9 ${9 * (brings.length - 1)}" stroke-dashoffset="${-9 * at}"`]);
  }

  // Up, along the lane, and up, with round corners; from a column to itself, a bow that leaves it and comes back.
  function wayOf(edge, from, band) {
    const to = edge.end, y = edge.lane, begin = `M${n(from)} ${n(band.bottom)}`;
    if (edge.bow) return `${begin}Q${n(from + BOW)} ${n(band.bottom)} ${n(from + BOW)} ${n(y)}Q${n(from + BOW)} ${n(band.top)} ${n(to)} ${n(band.top)}`;
    if (Math.abs(to - from) < 2 * TURN) return `${begin}C${n(from)} ${n(y)} ${n(to)} ${n(y)} ${n(to)} ${n(band.top)}`;
    const turn = to > from ? TURN : -TURN;
    return `${begin}V${n(y + TURN)}Q${n(from)} ${n(y)} ${n(from + turn)} ${n(y)}H${n(to - turn)}Q${n(to)} ${n(y)} ${n(to)} ${n(y - TURN)}V${n(band.top)}`;
  }

  function pathOf(circuit, edge, band, shown) {
    const path = circuit.paths[edge.path], width = edgeWidth(path.attention[shown] ?? path.mean_attention);
    const lines = edge.starts.map(start => wayOf(edge, start, band)).map(d => way(d, colour("paper"), width + CASING, 'class="casing"')
      + lanesFor(carried(path)).map(([stroke, dash]) => way(d, stroke, width, `class="lane"${dash}`)).join("") + way(d, "#000000", 14, 'class="hit" stroke-opacity="0"'));
    return `<g class="path" data-path="${edge.path}">${lines.join("")}</g>`;
  }

  function tagOf(circuit, edge) {
    const path = circuit.paths[edge.path], signs = signsOf(path);
    return `<g class="tag" data-path="${edge.path}" tabindex="0" role="button" aria-label="${escaped(stepWords(circuit, path))}">`
      + box(edge.tag - edge.width / 2, edge.lane - TAG / 2, edge.width, TAG, colour("paper"), `rx="8.5" stroke="${pathColour(path)}" stroke-width="1.2"`)
      + `<text x="${n(edge.tag)}" y="${n(edge.lane + 4)}" text-anchor="middle" font-size="11.5"><tspan font-weight="700">${headName(path)}</tspan>`
      + `${signs ? `<tspan dx="4">${escaped(signs)}</tspan>` : ""}</text></g>`;
  }

  function background(circuit, bands, x, width) {
    const held = letters(circuit), left = { anchor: "start", size: 11 }, quiet = { ...left, fill: colour("quiet") };
    const parts = bands.map(({ first, last, lanes, top, bottom }, at) => {
      const name = first === last ? `layer ${first}` : `layers ${first}–${last}`, middle = (top + bottom) / 2 + 4;
      return (lanes.length && at % 2 === 0 ? box(4, top, width - 8, bottom - top, colour("ink"), 'fill-opacity="0.045"') : "")
        + text(8, middle, name, lanes.length ? left : quiet) + (lanes.length ? "" : text(width - 10, middle, "no read", { ...quiet, size: 10, anchor: "end" }));
    });
    const { bottom } = bands[0], { top } = bands.at(-1);
    for (const [name, at] of x) {
      const asked = circuit.readout.includes(name), letter = held.get(name) ?? "", wide = Math.max(18, textWidth(letter) + 8);
      parts.push(way(`M${n(at)} ${n(bottom + 6)}V${n(asked ? top - 12 : top)}`, colour("stream"), 2), text(at, bottom + 20, name, { weight: 600 }));
      if (letter) parts.push(box(at - wide / 2, bottom + 25, wide, 17, colour("wash"), 'rx="4"'), text(at, bottom + 38, letter, { weight: 700 }));
      if (asked) parts.push(`<path d="M${n(at - 5)} ${n(top - 11)}h10l-5 -8z" fill="${colour("ink")}"/>`, text(at, top - 24, "readout", { weight: 600 }));
    }
    return [...parts, text(8, bottom + 20, "row", quiet), text(8, bottom + 37, held.size ? "example" : "", quiet)];
  }

  function legend(circuit, width) {
    const brought = drawn(circuit).map(at => carried(circuit.paths[at])), several = brought.find(each => each.length > 1);
    const names = [...new Set(brought.flat())].sort((a, b) => Number(a === "position") - Number(b === "position") || a.localeCompare(b, "en", { numeric: true }));
    const signs = names.map(name => [[name], name === "position" ? "p: carries a position" : `carries ${symbol(name)}`]);
    if (several) signs.push([several, "carries several"]);
    if (brought.some(each => !each.length)) signs.push([[], "carries nothing by itself"]);
    let x = 8, y = 14;
    const parts = [...signs, [null, "width: attention"]].map(([brings, words]) => {
      const wide = textWidth(words) + 42;
      if (x > 8 && x + wide > width) [x, y] = [8, y + 20];
      const sample = brings ? lanesFor(brings).map(([stroke, dash]) => way("M0 0h22", stroke, 5, dash)).join("") : `<path d="M0 4L22 5.5V-5.5L0 -0.5z" fill="${colour("idle")}"/>`;
      x += wide;
      return `<g transform="translate(${n(x - wide)} ${n(y)})">${sample}${text(27, 4, words, { fill: colour("quiet"), anchor: "start" })}</g>`;
    });
    return [parts, y + 12];
  }

  // The graph of a circuit at a checkpoint, as SVG; groups of a path have `data-path`, its number.
  function graph(circuit, shown) {
    const x = new Map(), names = used(circuit);
    let right = GUTTER;
    for (const name of names) {
      const wide = Math.max(COLUMN, textWidth(name) + 12);
      x.set(name, right + wide / 2);
      right += wide;
    }
    const width = Math.max(240, right + RIGHT, ...circuit.paths.map(path => GUTTER + tagWidth(path) + 12)), bands = bandsOf(circuit, x, width);
    const tall = bands.map(band => (band.lanes.length ? 2 * ENDS + LANE * band.lanes.length : IDLE)), height = TOP + sum(tall) + FOOT;
    let bottom = TOP + sum(tall);
    bands.forEach((band, at) => {
      [band.bottom, band.top] = [bottom, bottom - tall[at]];
      bottom = band.top;
      band.lanes.forEach((lane, place) => lane.forEach(edge => { edge.lane = band.top + ENDS + LANE * (place + 0.5); }));
    });
    const edges = bands.flatMap(band => band.lanes.flat().map(edge => [edge, band])).sort(([a], [b]) => a.path - b.path), [key, below] = legend(circuit, width);
    const nodes = new Set(edges.flatMap(([edge, band]) => [`${edge.query} ${band.top}`, ...edge.sources.map(each => `${each} ${band.bottom}`)]));
    return svg("circuit-graph", width, height + below, `Circuit of ${edges.length} reads, from the embedding (bottom) to the readout (top).`, [
      '<rect class="ground" width="100%" height="100%" fill="none"/>', ...background(circuit, bands, x, width),
      ...edges.map(([edge, band]) => pathOf(circuit, edge, band, shown)), ...[...nodes].map(at => box(at.split(" ")[0] - 6, at.split(" ")[1] - 4, 12, 8, colour("ink"), 'rx="4"')),
      ...edges.map(([edge]) => tagOf(circuit, edge)), `<g transform="translate(0 ${n(height)})">${key.join("")}</g>`,
    ], `width="${n(width)}" height="${n(height + below)}"`);
  }

  // A small picture, to be seen beside others: the same columns, and a step for each layer that reads.
  function mini(circuit, columns) {
    const x = new Map(columns.map((name, at) => [name, 12 + 20 * at])), paths = drawn(circuit).map(at => circuit.paths[at]);
    const reading = [...new Set(paths.map(path => path.layer))].sort((a, b) => a - b), level = layer => 10 + 18 * (reading.length - reading.indexOf(layer));
    const width = 24 + 20 * Math.max(1, columns.length - 1), height = 20 + 18 * Math.max(1, reading.length);
    const lines = paths.flatMap(path => sourcesOf(circuit, path).map(name => {
      const [from, to, y] = [x.get(name), x.get(path.query), level(path.layer)];
      const bend = from === to ? `Q${n(from + 14)} ${n(y - 9)}` : `C${n(from)} ${n(y - 10)} ${n(to)} ${n(y - 8)}`;
      return way(`M${n(from)} ${n(y)}${bend} ${n(to)} ${n(y - 18)}`, pathColour(path), 2);
    }));
    return svg("circuit-mini", width, height, "", [...[...x.values()].map(at => way(`M${n(at)} 8V${n(height - 8)}`, colour("stream"), 1.2)), ...lines], `width="${width}" height="${height}" aria-hidden="true"`);
  }

  // How a circuit formed: losses of what was learned above, attention of its paths below; `now` is moved by the slider.
  function timeline(circuit, curves) {
    const { steps } = circuit, [left, right, wide] = [40, 454, 500], span = Math.max(1, steps.at(-1) - steps[0]);
    const places = steps.map(step => left + ((right - left) * (step - steps[0])) / span);
    const named = Object.entries(curves), most = Math.max(1e-9, ...named.flatMap(([, values]) => values));
    const line = (ys, stroke, width, more) => way(`M${ys.map((y, at) => `${n(places[at])} ${n(y)}`).join("L")}`, stroke, width, more);
    const panel = (top, bottom, high, title) => [text(left, top - 10, title, { weight: 600, size: 11, anchor: "start" }), ...[0, 0.5, 1].map(share => {
      const y = bottom - share * (bottom - top);
      return way(`M${left} ${n(y)}H${right}`, colour(share ? "grid" : "axis"), 1) + text(left - 6, y + 4, String(Number((high * share).toPrecision(2))), { fill: colour("quiet"), size: 10.5, anchor: "end" });
    })];
    const loss = value => 118 - (90 * Math.min(value, most)) / most, attention = value => 236 - 80 * Math.min(1, value);
    let floor = 124;
    const ends = new Map([...named].sort(([, a], [, b]) => a.at(-1) - b.at(-1)).map(([name, values]) => { // names at the ends, without overlap
      const at = Math.min(floor, loss(values.at(-1)) + 4);
      floor = at - 12;
      return [name, at];
    }));
    const parts = [...panel(28, 118, most, "held-out loss"), ...panel(156, 236, 1, "attention of each read on its tokens"),
      ...named.map(([name, values]) => line(values.map(loss), symbolColour(name), 2.2)
        + text(right + 5, ends.get(name), symbol(name), { fill: symbolColour(name), size: 11, weight: 700, anchor: "start" })),
      ...drawn(circuit).filter(at => circuit.paths[at].attention.length).map(at =>
        line(circuit.paths[at].attention.map(attention), pathColour(circuit.paths[at]), 1.4, `class="path" data-path="${at}" stroke-opacity="0.75"`)),
      ...[[left, steps[0].toLocaleString("en")], [right, steps.at(-1).toLocaleString("en")], [(left + right) / 2, "training step"]].map(([x, words]) => text(x, 251, words, { fill: colour("quiet"), size: 10.5 })),
      way("M0 20V236", colour("ink"), 1.5, 'class="now"')];
    const said = named.map(([name, values]) => `${symbol(name)} from ${values[0].toFixed(2)} to ${values.at(-1).toFixed(2)}`).join(", ");
    return [svg("circuit-timeline", wide, 262, `Training steps ${steps[0]} to ${steps.at(-1)}. Held-out loss: ${said}.`, parts), places];
  }

  return { CASING, carried, drawn, edgeWidth, graph, headName, mini, readsWords, ruleWords, stepWords, symbol, timeline, used, useWords };
})();
