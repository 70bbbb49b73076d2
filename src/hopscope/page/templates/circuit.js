"use strict";
// The circuit player: one circuit at a time, at a checkpoint, walked through read by read; picture.js draws it.
(() => {
  const element = globalThis.hopscopeElement, bar = globalThis.hopscopeBar, Matrix = globalThis.hopscopeMatrix, picture = globalThis.hopscopePicture;
  const PACE = 900; // milliseconds for each checkpoint
  const HINT = "Each row reads columns: the stronger the colour, the more. Outlined: what the rule names. Point at a cell for its value.";
  const MODES = { rules: "rules", clean: "full", recomputed: "recomputed" }; // how a read is removed, and what to hold it against
  const COLUMNS = ["head", "rows", "read", "carries", "attention", "used by", ...Object.keys(MODES).map(mode => `loss without it: ${mode}`)];
  const WIDE = 600; // a graph wider than this stands alone

  const loss = value => (value === null || value === undefined ? "–" : value.toFixed(3));
  const drawing = text => document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);

  // Bars: loss without the read, a tick at the loss with it, and the threshold.
  function bars(path, { loss: found, random, threshold }) {
    const known = Object.keys(MODES).map(mode => path.removed[mode]).filter(each => each !== null && each !== undefined);
    const mean = random.length ? random.reduce((sum, each) => sum + each, 0) / random.length : null;
    const most = 1.05 * Math.max(threshold, mean ?? 0, ...known);
    const row = (name, value, beside, words) => bar(name, (value ?? 0) / most, [["threshold", threshold / most], ["tick", beside / most]], [words]);
    const rows = Object.entries(MODES).map(([mode, beside]) => row(mode, path.removed[mode], found[beside], `${loss(path.removed[mode])} (with it ${loss(found[beside])})`));
    return mean === null ? rows : [...rows, row("random circuits", mean, NaN, `${loss(mean)} (${loss(Math.min(...random))} – ${loss(Math.max(...random))})`)];
  }

  // A graph as a file: the variables of the page's style are colours again.
  async function saved(graph, kind) {
    const light = new Map(Object.entries(JSON.parse(document.getElementById("chart-colours").textContent)).map(([colour, variable]) => [variable, colour]));
    const { width, height } = graph.viewBox.baseVal;
    const text = new XMLSerializer().serializeToString(graph).replace(/var\(--chart-[\w-]+\)/g, found => light.get(found) ?? found)
      .replace('height="100%" fill="none"', 'height="100%" fill="#ffffff"');
    const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    if (kind === "svg") return address;
    const image = new Image(), canvas = element("canvas", { width: 2 * width, height: 2 * height });
    image.src = address;
    await image.decode();
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    return canvas.toDataURL();
  }

  class Player {
    constructor(figure) {
      Object.assign(this, { figure, circuits: JSON.parse(figure.querySelector(".circuit-data").textContent) });
      for (const circuit of this.circuits) {
        const walk = picture.drawn(circuit).sort((a, b) => circuit.paths[a].layer - circuit.paths[b].layer || a - b);
        Object.assign(circuit, { walk, at: circuit.steps.length - 1, chosen: walk[0] ?? null });
      }
      const every = new Set(this.circuits.flatMap(picture.used)), columns = this.circuits[0].columns.filter(name => every.has(name));
      const names = [...columns, ...[...every].filter(name => !columns.includes(name))];
      this.choices = this.circuits.map((circuit, number) => {
        const button = element("button", { type: "button" }, drawing(picture.mini(circuit, names)), element("span", {}, circuit.name));
        button.addEventListener("click", () => this.show(number));
        return button;
      });
      this.part(".minis").replaceChildren(...(this.choices.length > 1 ? this.choices : []));
      this.slider = this.part("input[name=checkpoint]");
      this.matrix = new Matrix(this.part("canvas"), () => {}, cell => this.point(cell));
      this.stop = globalThis.hopscopePlay(this.part(".play"), "Play training", this.slider, PACE);
      this.slider.addEventListener("input", () => this.move());
      this.part(".back").addEventListener("click", () => this.walk(-1));
      this.part(".next").addEventListener("click", () => this.walk(1));
      this.part("form").addEventListener("submit", event => event.preventDefault());
      const choose = event => {
        const mark = event.target.closest("[data-path]");
        if (!mark || (event.type === "keydown" && !(mark.matches(".tag") && ["Enter", " "].includes(event.key)))) return;
        event.preventDefault();
        this.choose(Number(mark.dataset.path));
      };
      for (const kind of ["click", "keydown"]) figure.addEventListener(kind, choose);
      globalThis.hopscopeOffer(this.part(".graph"), "circuit", kind =>
        (kind === "csv" ? globalThis.hopscopeCsv(this.csv()) : saved(this.part(".circuit-graph"), kind)));
    }

    part(selector) { return this.figure.querySelector(selector); }
    all(selector) { return [...this.figure.querySelectorAll(selector)]; }

    async show(number) {
      this.stop();
      const circuit = this.circuits[number], { steps, curves } = circuit;
      this.circuit = circuit;
      this.choices.forEach((each, at) => each.setAttribute("aria-pressed", String(at === number)));
      const maps = await Matrix.inflated(circuit.maps);
      if (this.circuit !== circuit) return;
      this.maps = maps;
      const graph = drawing(picture.graph(circuit, circuit.at)), formed = steps.length > 1 && Object.keys(curves).length;
      graph.setAttribute("role", "group");
      this.part(".graph").replaceChildren(graph);
      this.part(".circuit-board").classList.toggle("is-wide", graph.viewBox.baseVal.width > WIDE);
      const [timeline, places] = formed ? picture.timeline(circuit, curves) : ["", []];
      this.places = places;
      this.part(".formed").replaceChildren(...(formed ? [drawing(timeline)] : []));
      this.part(".formed").hidden = !formed;
      this.part(".found").replaceChildren(element("b", {}, `${circuit.name}. `), circuit.words);
      this.part(".reads tbody").replaceChildren(...circuit.paths.map((path, at) => {
        const [head, ...cells] = this.row(path), shown = circuit.walk.includes(at);
        const first = shown ? element("button", { type: "button", "data-path": at, "aria-label": `Show head ${head}, ${path.query}` }, head) : head;
        return element("tr", {}, element("th", { scope: "row" }, first), ...cells.map(each => element("td", {}, each)));
      }));
      for (const each of [this.part(".play"), this.slider.parentElement, this.part("output")]) each.hidden = steps.length < 2;
      this.slider.max = String(steps.length - 1);
      this.slider.value = String(circuit.at);
      this.figure.classList.add("is-live");
      this.move();
    }

    row(path) {
      const uses = [...new Set(path.uses.slice(0, 4).map(use => picture.useWords(use, true)))].join(", ");
      return [picture.headName(path), path.query, picture.readsWords(path), picture.carried(path).map(picture.symbol).join(", ") || "–",
        path.mean_attention.toFixed(2), uses || "–", ...Object.keys(MODES).map(mode => loss(path.removed[mode]))];
    }

    csv() {
      const cell = text => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
      return [COLUMNS, ...this.circuit.paths.map(path => this.row(path))].map(row => `${row.map(cell).join(",")}\n`).join("");
    }

    move() {
      const { circuit } = this, step = circuit.steps[Number(this.slider.value)];
      circuit.at = Number(this.slider.value);
      const losses = Object.entries(circuit.curves).map(([name, values]) => `${picture.symbol(name)} ${values[circuit.at].toFixed(2)}`).join(", ");
      const words = `step ${(step ?? 0).toLocaleString("en")}${losses ? `: loss ${losses}` : ""}`;
      this.part("output").textContent = words;
      this.slider.setAttribute("aria-valuetext", words);
      this.draw();
    }

    choose(path) { this.circuit.chosen = path; this.draw(); }

    // To the next read of the circuit, from the embedding up, or back.
    walk(by) {
      const { walk, chosen } = this.circuit;
      if (walk.length) this.choose(walk[Math.min(walk.length - 1, Math.max(0, walk.indexOf(chosen) + by))]);
    }

    draw() {
      const { circuit } = this, { paths, walk, chosen, at } = circuit, path = paths[chosen];
      for (const edge of this.all(".circuit-graph .path")) {
        const attention = Math.min(1, this.attention(paths[Number(edge.dataset.path)])), width = picture.edgeWidth(attention);
        for (const lane of edge.querySelectorAll(".lane, .casing")) lane.setAttribute("stroke-width", (lane.matches(".casing") ? width + picture.CASING : width).toFixed(2));
        edge.setAttribute("opacity", (0.35 + 0.65 * attention).toFixed(3));
      }
      this.part(".now")?.setAttribute("transform", `translate(${this.places[at]} 0)`);
      const user = each => Boolean(path?.uses.some(use => use.layer === each.layer && use.head === each.head && use.rows === each.query));
      for (const mark of this.all("[data-path]")) {
        const number = Number(mark.dataset.path);
        mark.classList.toggle("is-chosen", number === chosen);
        mark.classList.toggle("is-user", user(paths[number]));
        if (mark.matches(".tag, button")) mark.setAttribute("aria-pressed", String(number === chosen));
      }
      const place = walk.indexOf(chosen);
      this.part(".walked").textContent = path ? `${place >= 0 ? `Read ${place + 1} of ${walk.length}. ` : ""}${picture.stepWords(circuit, path)}` : "";
      this.part(".chosen").hidden = !path;
      if (path) this.drawPanel(path);
    }

    attention(path) { return path.attention[this.circuit.at] ?? path.mean_attention; }

    drawPanel(path) {
      const { tokens, mapped, at } = this.circuit, head = picture.headName(path), read = path.targets.map(each => each.words).filter(Boolean).join(" and ");
      this.part(".path-title").textContent = `Head ${head}: ${path.query} reads ${read || picture.ruleWords(path.rule)}`;
      const facts = [["reads", picture.readsWords(path)], ["carries", picture.carried(path).map(picture.symbol).join(", ") || "nothing that could be measured alone"],
        ["used by", path.uses.slice(0, 4).map(use => `${picture.useWords(use)} (+${use.rise.toFixed(2)})`).join("; ") || "no single reader shows a loss"],
        ["attention", this.attention(path).toFixed(2)]];
      this.part(".chosen dl").replaceChildren(...facts.flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)]));
      this.part(".losses tbody").replaceChildren(...bars(path, this.circuit));
      const place = mapped.indexOf(head), size = tokens.length, from = (at * mapped.length + place) * size * size;
      this.part(".frame").hidden = place < 0;
      this.pattern = place < 0 ? null : tokens.map((_, row) => Array.from(this.maps.subarray(from + row * size, from + (row + 1) * size), each => each / 255));
      this.point(null);
      if (!this.pattern) return;
      this.matrix.draw({
        pattern: this.pattern, labels: tokens.map(token => token.label), roles: tokens.map(token => token.role), cells: path.cells,
        rows: tokens.flatMap((token, row) => (token.role === path.query ? [row] : [])),
      });
      this.part("canvas").setAttribute("aria-label", `Attention of head ${head} in the worked example: arrow keys move. ${this.part(".walked").textContent}`);
    }

    point(cell) {
      const name = at => `${this.circuit.tokens[at].role} (${this.circuit.tokens[at].label})`;
      this.part(".cell-value").textContent = !this.pattern ? "" : !cell ? HINT
        : `${name(cell.row)} reads ${name(cell.key)}: ${this.pattern[cell.row][cell.key].toFixed(2)}`;
    }
  }

  // The first circuit of a player beside the answer: a picture that cannot be played.
  function show(place) {
    const [circuit] = JSON.parse(document.querySelector(`#${place.dataset.circuits} .circuit-data`).textContent);
    const graph = drawing(picture.graph(circuit, circuit.steps.length - 1));
    for (const mark of graph.querySelectorAll("[data-path]")) for (const name of ["tabindex", "role", "aria-label", "data-path"]) mark.removeAttribute(name);
    const card = place.querySelector(".card");
    card.replaceChildren(graph);
    if (card.scrollWidth > card.clientWidth + 1) card.tabIndex = 0;
    place.querySelector("figcaption span").textContent = circuit.name;
  }

  for (const place of document.querySelectorAll(".lead-circuit")) globalThis.hopscopeLater(place, () => show(place));
  for (const figure of document.querySelectorAll("figure.circuits")) globalThis.hopscopeLater(figure, () => new Player(figure).show(0));
})();
