"use strict";
// The circuit player: one circuit at a time, at a checkpoint, with one of its paths chosen.  Nothing is laid out here.
(() => {
  const element = globalThis.hopscopeElement;
  const { map, bytes, cellAt } = globalThis.hopscopeMap;
  const PACE = 900; // milliseconds for each checkpoint

  const HINT = "Rows read, columns are read. Point at a cell for its value.";

  const loss = value => (value === null ? "–" : value.toFixed(3));
  const percent = share => `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;

  // Bars: loss without the path, a tick at the loss with it, and the threshold.

  function bar(name, without, beside, most, threshold) {
    return element("tr", {},
      element("th", { scope: "row" }, name),
      element("td", { class: "drawn" }, element("span", { class: "track", "aria-hidden": "true" },
        element("span", { class: "fill", style: `width: ${percent(without / most)}` }),
        element("span", { class: "threshold", style: `left: ${percent(threshold / most)}` }),
        ...(beside === null ? [] : [element("span", { class: "tick", style: `left: ${percent(beside / most)}` })]),
      )),
      element("td", { class: "figure" }, loss(without)),
      element("td", { class: "figure" }, loss(beside)),
    );
  }

  function randomBar({ random_circuits: mean, random_circuits_range: range }, most, threshold) {
    if (mean === null || range === null) return [];
    const [low, high] = range;
    const drawn = element("span", { class: "track", "aria-hidden": "true" },
      element("span", { class: "range", style: `left: ${percent(low / most)}; width: ${percent(Math.min(1, high / most) - low / most)}` }),
      element("span", { class: "middle", style: `left: ${percent(mean / most)}` }),
      element("span", { class: "threshold", style: `left: ${percent(threshold / most)}` }),
    );
    const written = `${mean.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)})`;
    return [element("tr", { class: "random" },
      element("th", { scope: "row" }, "random circuits"),
      element("td", { class: "drawn" }, drawn),
      element("td", { class: "figure", colspan: "2" }, written),
    )];
  }

  function bars(path, found, threshold) {
    const { rules, clean, recomputed } = path.removed;
    // Single random circuits may be far worse than anything: their range is cut, its numbers are written.
    const most = 1.05 * Math.max(1, rules, clean, recomputed, threshold, found.random_circuits ?? 0);
    return [
      bar("rules", rules, found.rules, most, threshold),
      bar("clean", clean, found.full, most, threshold),
      bar("recomputed", recomputed, found.recomputed, most, threshold),
      ...randomBar(found, most, threshold),
    ];
  }

  function facts(path, attention) {
    const pairs = [
      ["reads", path.reads],
      ["carries", path.carries],
      ["used by", path.uses.length ? path.uses.slice(0, 4).join("; ") : "no single reader shows a loss"],
      ["attention", attention.toFixed(2)],
    ];
    return pairs.flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)]);
  }

  // A drawing of the page as a file: its variables are colours again.

  async function drawing(graph, kind) {
    const colours = Object.entries(JSON.parse(document.getElementById("chart-colours").textContent));
    const light = new Map(colours.reverse().map(([colour, variable]) => [variable, colour])); // of several the first
    const { width, height } = graph.viewBox.baseVal;
    const text = new XMLSerializer().serializeToString(graph).replace(/var\(--chart-[\w-]+\)/g, found => light.get(found) ?? found)
      .replace('width="100%" height="100%" fill="none"', `width="100%" height="100%" fill="${light.get("var(--chart-paper)")}"`);
    const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    if (kind === "svg") return address;
    const image = new Image(), canvas = element("canvas", { width: 2 * width, height: 2 * height });
    image.src = address;
    await image.decode();
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    return canvas.toDataURL();
  }

  // One circuit.

  class View {
    constructor(box, choose) {
      this.box = box;
      this.data = JSON.parse(box.querySelector(".circuit-data").textContent);
      this.maps = {};
      this.chosen = this.data.first;
      this.at = this.data.shown;
      this.choose = choose;
      this.panel = box.querySelector(".circuit-path");
      this.prepare();
    }

    // Files: the graph as it is drawn now in the light colours, and its paths.
    offer(published) {
      const name = [published, this.data.file].filter(Boolean).join("-");
      globalThis.hopscopeOffer(this.box.querySelector(".circuit-graph").closest(".card"), name, kind =>
        kind === "csv" ? globalThis.hopscopeCsv(this.data.csv) : drawing(this.box.querySelector(".circuit-graph"), kind));
    }

    all(selector) {
      return [...this.box.querySelectorAll(selector)];
    }

    prepare() {
      // What could be only looked at becomes what can be worked with.
      const graph = this.box.querySelector(".circuit-graph");
      graph.setAttribute("role", "group");
      graph.addEventListener("click", event => this.clicked(event.target.closest("[data-path]")));
      for (const tag of this.all(".tag")) {
        tag.setAttribute("tabindex", "0");
        tag.setAttribute("role", "button");
        tag.addEventListener("keydown", event => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          this.clicked(tag);
        });
      }
      this.all(".circuit-paths tbody:not(.undrawn) tr").forEach((row, at) => {
        const head = row.querySelector("th"), button = element("button", { type: "button" }, head.textContent);
        button.setAttribute("aria-label", `Show path ${head.textContent}, ${this.data.paths[at].query}`);
        head.replaceChildren(button);
        row.addEventListener("click", () => this.choose(at));
      });
      for (const moved of this.data.maps ? ["pointermove", "pointerdown"] : []) {
        this.panel.querySelector(".path-map").addEventListener(moved, event => this.pointed(event));
      }
    }

    clicked(mark) {
      if (mark) this.choose(Number(mark.dataset.path));
    }

    pattern(path) {
      this.maps[path.head] ??= bytes(this.data.maps[path.head]);
      const size = this.data.tokens.length ** 2;
      return this.maps[path.head].subarray(this.at * size, (this.at + 1) * size);
    }

    pointed(event) {
      const svg = this.panel.querySelector(".path-map svg");
      const cell = cellAt(svg, event, this.data.tokens.length);
      if (!cell) return;
      const name = at => `${this.data.tokens[at].label} ${this.data.tokens[at].chain} (place ${at + 1})`;
      const share = this.pattern(this.data.paths[this.chosen])[cell.row * this.data.tokens.length + cell.key] / 255;
      this.panel.querySelector(".path-cell").textContent = `${name(cell.row)} reads ${name(cell.key)}: ${share.toFixed(2)}`;
    }

    draw() {
      this.drawGraph();
      this.drawMarks();
      if (this.chosen !== null) this.drawPanel();
    }

    drawGraph() {
      const { thinnest, thickest, casing } = this.data.width;
      for (const edge of this.all(".circuit-graph .path")) {
        const attention = this.data.paths[Number(edge.dataset.path)].attention[this.at];
        for (const way of edge.querySelectorAll("[data-share]")) {
          const width = thinnest + (thickest - thinnest) * attention * Number(way.dataset.share);
          way.setAttribute("stroke-width", (way.matches(".casing") ? width + casing : width).toFixed(2));
        }
        edge.setAttribute("opacity", (0.35 + 0.65 * attention).toFixed(3));
      }
      const now = this.box.querySelector(".circuit-timeline .now");
      for (const end of ["x1", "x2"]) now.setAttribute(end, this.data.places[this.at]);
    }

    drawMarks() {
      const users = this.chosen === null ? [] : this.data.paths[this.chosen].users;
      for (const mark of this.all("[data-path]")) {
        const at = Number(mark.dataset.path);
        mark.classList.toggle("is-chosen", at === this.chosen);
        mark.classList.toggle("is-user", users.includes(at));
        if (mark.matches(".tag")) mark.setAttribute("aria-pressed", String(at === this.chosen));
      }
      this.all(".circuit-paths tbody:not(.undrawn) tr").forEach((row, at) => {
        row.classList.toggle("is-chosen", at === this.chosen);
        row.querySelector("button").setAttribute("aria-pressed", String(at === this.chosen));
      });
    }

    drawPanel() {
      const path = this.data.paths[this.chosen], part = selector => this.panel.querySelector(selector);
      const title = part(".path-title");
      if (title.textContent !== path.title) title.textContent = path.title;
      part(".path-facts").replaceChildren(...facts(path, path.attention[this.at]));
      if (this.data.maps) {
        part(".path-map").replaceChildren(map(this.data.tokens, this.data.groups, path, this.pattern(path)));
        part(".path-cell").textContent = HINT;
      }
      part(".path-losses tbody").replaceChildren(...bars(path, this.data.loss, this.data.threshold));
      this.panel.hidden = false;
    }

    words() {
      const losses = this.data.partial.map(each => `${each.name} ${each.loss[this.at].toFixed(3)}`).join(", ");
      return `step ${this.data.checkpoints[this.at].toLocaleString("en")} · ${this.data.measured} ${losses}`;
    }
  }

  // The whole block.

  function start(figure) {
    const form = figure.querySelector(".circuit-controls");
    const { checkpoint: slider, circuit: choice } = form.elements;
    const play = form.querySelector(".play"), now = form.querySelector(".circuit-now");
    const views = [...figure.querySelectorAll(".circuit-view")].map(box => {
      const view = new View(box, at => { view.chosen = at; view.draw(); });
      view.offer(figure.dataset.published);
      return view;
    });
    let view = views[0], timer = null;

    function moved() {
      view.at = Number(slider.value);
      now.textContent = view.words();
      slider.setAttribute("aria-valuetext", view.words());
      view.draw();
    }

    function stop() {
      clearInterval(timer);
      timer = null;
      play.innerHTML = '<span aria-hidden="true">▶</span> Play';
    }

    function onward() {
      slider.value = String(Number(slider.value) + 1);
      moved();
      if (slider.value === slider.max) stop();
    }

    function toggle() {
      if (timer !== null) return stop();
      if (slider.value === slider.max) { slider.value = "0"; moved(); }
      play.innerHTML = '<span aria-hidden="true">❚❚</span> Pause';
      timer = setInterval(onward, PACE);
    }

    function show(number) {
      stop();
      view = views[number];
      views.forEach((each, at) => { each.box.hidden = at !== number; });
      slider.max = String(view.data.checkpoints.length - 1);
      slider.value = String(view.at);
      moved();
    }

    slider.addEventListener("input", () => { stop(); moved(); });
    play.addEventListener("click", toggle);
    if (choice) choice.addEventListener("change", () => show(Number(choice.value)));
    form.addEventListener("submit", event => event.preventDefault());
    figure.classList.add("is-live");
    for (const each of figure.querySelectorAll(".needs-script")) each.hidden = false;
    show(choice ? Number(choice.value) : 0);
    form.hidden = false;
  }

  for (const figure of document.querySelectorAll("figure.circuit")) {
    try {
      start(figure);
    } catch (error) {
      figure.querySelector(".complaint").textContent = `The circuits could not be brought to life: ${error.message}`;
      console.error(error);
    }
  }
})();
