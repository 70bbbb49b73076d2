"use strict";
// The explorer: attention of the page's models, through training, one sample at a time; computed in the page where the
// weights are there, on any input and with heads edited.  The address keeps the view.
(() => {
  const element = globalThis.hopscopeElement, bar = globalThis.hopscopeBar, Matrix = globalThis.hopscopeMatrix;
  const { load, run, softmax } = globalThis.hopscopeForward;
  const PACE = 700; // milliseconds for each checkpoint
  const MOST_BARS = 10;

  // What is wrong with what was typed, in words for the reader.
  class Refusal extends Error {}

  const letter = number => String.fromCharCode(65 + (number % 26)) + (number < 26 ? "" : Math.floor(number / 26));
  const alike = (a, b) => a.every((value, at) => value === b[at]);
  const distance = (a, b) => a.reduce((sum, value, at) => sum + (value - b[at]) ** 2, 0) / a.length;
  const best = values => values.reduce((found, value, at) => (value > values[found] ? at : found), 0);
  const below = (value, bound) => Number.isInteger(value) && value >= 0 && value < bound;
  const option = ([value, words]) => element("option", { value }, words);

  // A probability that is never written as 0 or 1 where it is neither.
  function written(value) {
    if (value < 0.0005 && value > 0) return "<0.001";
    return [3, 4, 5, 6].map(decimals => value.toFixed(decimals)).find(text => value === 1 || Number(text) < 1) ?? ">0.999999";
  }

  // Numbers from a seed, about normal: sums of twelve uniform ones (mulberry32).
  function normals(seed) {
    let state = seed >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return () => Array.from({ length: 12 }, uniform).reduce((sum, each) => sum + each, -6);
  }

  // What is put to the models: a sample, or what the reader made of it.
  class Sequence {
    constructor(model, example = 0) {
      Object.assign(this, { model, example: Math.min(example, model.inputs.length - 1), typed: null, drawn: 0, places: {} });
    }

    // The same sample, as another model has it.
    of(model) { const { typed, drawn, places } = this; return Object.assign(new Sequence(model, this.example), { typed, drawn, places }); }

    get own() { return this.typed !== null || this.drawn > 0 || Object.keys(this.places).length > 0; }

    // Inputs, labels and roles by position, and what is known of the right answers.
    read() {
      const { model, example } = this, { config } = model.shape, given = model.inputs[example], roles = model.roles[example];
      if (config.inputs === "tokens") {
        const ids = this.typed === null ? given : this.parse(config.length);
        const targets = model.outputs === "vectors" ? model.targets[example].map(vector => [{ symbol: -1, vector }]) : model.targets[example];
        return { rows: ids, labels: ids.map(id => model.tokens[id]), targets: this.typed === null ? targets : null,
          roles: ids.map((_, at) => roles[at] ?? `place ${at + 1}`) };
      }
      const size = model.symbol_size || config.input_size, different = [];
      const of = given.map(vector => {
        const symbol = vector.slice(0, size), known = different.findIndex(each => alike(each, symbol));
        return known < 0 ? different.push(symbol) - 1 : known;
      });
      const symbols = this.redrawn(different), held = of.map((symbol, at) => this.places[at] ?? symbol);
      const rows = given.map((vector, at) => [...symbols[held[at]], ...vector.slice(size)]);
      // Which symbol each part of each target is, or the vector itself where it is none of the sample's.
      // The answer to an exchanged symbol is not known here.
      const exchanged = Object.keys(this.places).length > 0;
      const whole = target => [{ symbol: -1, vector: target }];
      const parted = target => Array.from({ length: target.length / size }, (_, part) => {
        const vector = target.slice(part * size, (part + 1) * size), symbol = different.findIndex(each => alike(each, vector));
        return { symbol, vector: symbol < 0 ? vector : symbols[symbol] };
      });
      const known = model.targets[example], told = model.outputs === "classes" ? known : known.map(model.symbol_size ? parted : whole);
      const targets = exchanged ? null : told;
      return { rows, labels: held.map(letter), roles, targets, symbols, held };
    }

    parse(most) {
      const { shape } = this.model, tokens = this.model.tokens.slice(0, shape.config.input_size);
      const single = tokens.every(token => token.length === 1);
      const typed = this.typed.trim().replace(/\?$/, "");
      const apart = this.typed.trim().split(/\s+/), told = apart.every(word => tokens.includes(word));
      const found = told ? apart : single ? typed.match(/[^\s,;:→>-]/g) || [] : typed.split(/[\s,;:→>]+/).filter(Boolean);
      const some = tokens.length > 12 ? `${tokens.slice(0, 11).join(" ")} …` : tokens.join(" ");
      if (!found.length || found.length > most) throw new Refusal(`Expected 1 to ${most} of the tokens ${some}, found ${found.length}.`);
      return found.map((word, at) => {
        const id = tokens.indexOf(word);
        if (id < 0) throw new Refusal(`Expected tokens among ${some}, found “${word}” at place ${at + 1}.`);
        return id;
      });
    }

    // Other symbols of the same size in place of these.
    redrawn(different) {
      if (!this.drawn) return different;
      const squares = different.flat().map(value => value * value), draw = normals(this.drawn);
      const scale = Math.sqrt(squares.reduce((a, b) => a + b, 0) / squares.length);
      return different.map(each => each.map(() => scale * draw()));
    }
  }

  // Answers: a bar for each class, or for each part of a vector.

  function bars(columns, rows) {
    const head = columns.map(each => element("th", { scope: "col" }, each));
    return element("table", { class: "bars" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  }

  function classes(model, target, predicted, clean) {
    const now = Array.from(softmax(predicted)), before = clean && Array.from(softmax(clean));
    const kept = new Set([...now.keys()].sort((a, b) => now[b] - now[a]).slice(0, MOST_BARS));
    if (target !== null) kept.add(target);
    const name = value => model.tokens[value] ?? String(value), chosen = best(now);
    const rows = [...kept].sort((a, b) => a - b).map(value => bar(name(value), now[value], [["tick", before ? before[value] : NaN]],
      [written(now[value]), ...(before ? [`as it is ${written(before[value])}`] : []), value === target ? "✓ right" : ""], value === target ? "is-target" : ""));
    const right = target === null ? "" : chosen === target ? ", which is right" : `; right would be ${name(target)}`;
    return { drawn: bars(["answer", "", "probability"], rows), said: `${name(chosen)} (${written(now[chosen])})`, right };
  }

  function vectors(model, targets, symbols, predicted, clean) {
    const size = model.symbol_size || predicted.length;
    if (!model.symbol_size) symbols = [];
    const part = (values, at) => values.slice(at * size, (at + 1) * size);
    const nearest = values => best(symbols.map(each => -distance(values, each)));
    const name = at => (model.parts[at] ?? `${at + 1}.`).replace(/^(?:step_)?(\d+)$/, (_, step) => `x${step.replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit])}`);
    const found = Array.from({ length: predicted.length / size }, (_, at) => {
      const target = targets?.[at] ?? { symbol: -1, vector: null }, error = values => (target.vector ? distance(part(values, at), target.vector) : NaN);
      return { target, answer: nearest(part(predicted, at)), error: error(predicted), before: clean ? error(clean) : NaN };
    });
    const rows = found.map(({ target, answer, error, before }, at) => bar(name(at), error || 0, [["tick", before]],
      [Number.isNaN(error) ? "–" : error.toFixed(3), !symbols.length ? "" : `says ${letter(answer)}${target.symbol < 0 ? "" : answer === target.symbol ? " ✓" : `, not ${letter(target.symbol)}`}`], answer === target.symbol ? "is-target" : ""));
    const known = found.filter(each => each.target.symbol >= 0), all = known.length === found.length && known.every(each => each.answer === each.target.symbol);
    return { drawn: bars(["asked", "", "error", "nearest symbol"], rows), said: symbols.length ? found.map((each, at) => `${name(at)} = ${letter(each.answer)}`).join(", ") : "a vector",
      right: known.length < found.length ? "" : all ? ", which is right" : ", which is not right" };
  }

  // One model at a checkpoint, with what is edited in it.
  class Panel {
    constructor(explorer, state) {
      Object.assign(this, { explorer, ...state, edits: [...state.edits] });
      const label = (words, control) => element("label", {}, words, control);
      this.chooser = element("select", { name: "model" }, ...explorer.models.map((model, at) => option([at, model.name])));
      this.heads = element("select", { name: "head", title: "The number is what the loss on the samples rises by without the head." });
      this.slider = element("input", { type: "range", name: "checkpoint", min: 0, step: 1 });
      this.player = element("button", { type: "button", class: "play" });
      this.now = element("output");
      this.how = element("select", { name: "how" }, ...[["", "as it learned"], ["zero", "no token (switched off)"], ["uniform", "all tokens equally"]].map(option));
      this.which = element("select", { name: "rows" });
      this.listed = element("p", { class: "edits" });
      this.canvas = element("canvas", { tabindex: 0, role: "img" });
      this.cell = element("p", { class: "cell-value", "aria-live": "polite" });
      this.title = element("p", { class: "answer-title" });
      this.answer = element("div", { class: "answers" });
      this.summary = element("p", { class: "summary", role: "status" });
      this.editing = element("div", {}, element("div", { class: "controls" }, label("This head reads", this.how), label("in", this.which)), this.listed);
      this.frame = element("div", { class: "frame" }, this.canvas);
      this.box = element("div", { class: "panel", role: "group", "aria-label": "Model" },
        element("div", { class: "controls" }, label("Model", this.chooser), label("Head", this.heads), this.player, label("Checkpoint", this.slider), this.now),
        this.summary,
        element("div", { class: "board" }, element("div", {}, this.frame, this.cell), element("div", { class: "said" }, this.title, this.answer, this.editing)));
      this.matrix = new Matrix(this.canvas, row => explorer.changed(() => { explorer.row = row; }), cell => this.point(cell));
      this.stop = globalThis.hopscopePlay(this.player, "Play", this.slider, PACE);
      const on = (control, event, does) => control.addEventListener(event, () => { if (control !== this.slider) this.stop(); explorer.changed(does); });
      on(this.chooser, "change", () => this.take(Number(this.chooser.value)));
      on(this.heads, "change", () => { [this.layer, this.head] = this.heads.value.split(".").map(Number); });
      on(this.slider, "input", () => { this.checkpoint = Number(this.slider.value); });
      on(this.how, "change", () => this.edit(this.how.value));
      on(this.which, "change", () => { if (this.how.value) this.edit(this.how.value); });
    }

    get model() { return this.explorer.models[this.at]; }
    get config() { return this.model.shape.config; }
    get state() { return { at: this.at, checkpoint: this.checkpoint, layer: this.layer, head: this.head, edits: this.edits }; }
    get shown() { return this.model.checkpoints[this.checkpoint]; }

    // Another model: its last checkpoint, the same head where it has one, and no edits.
    take(at) {
      this.at = at;
      this.checkpoint = this.model.checkpoints.length - 1;
      this.layer = Math.min(this.layer, this.config.layers - 1);
      this.head = Math.min(this.head, this.config.heads - 1);
      this.edits = [];
    }

    // Edits: one for each head and choice of rows.

    rowsOf(choice) {
      if (choice === "all") return null;
      return this.explorer.read.roles.flatMap((role, at) => ((choice === "row" ? at === this.explorer.row : role.split(" ")[0] === choice) ? [at] : []));
    }

    same(rows) { return each => each.layer === this.layer && each.head === this.head && String(each.rows) === String(rows); }

    edit(as) {
      const rows = this.rowsOf(this.which.value), same = this.same(rows);
      this.edits = this.edits.filter(each => !same(each));
      if (as) this.edits.push({ layer: this.layer, head: this.head, rows, as });
    }

    // Patterns and predictions: computed where the weights are there, else as they were kept.
    async found() {
      const { shown, config, explorer } = this, { sequence, read } = explorer, last = this.model.checkpoints.at(-1);
      if (!shown.weights && (sequence.own || this.edits.length)) {
        const where = last.weights ? `those of step ${last.step} are: move there` : "its patterns were kept for the given samples alone";
        throw new Refusal(`The weights of this checkpoint are not on the page (${where}).`);
      }
      if (shown.weights) {
        shown.loaded ??= load(this.model.shape, shown.weights);
        const clean = run(shown.loaded, read.rows);
        return this.edits.length ? { ...run(shown.loaded, read.rows, this.edits), clean } : clean;
      }
      shown.bytes ??= await Matrix.inflated(shown.patterns);
      const { layers, heads, length } = config, from = sequence.example * layers * heads * length ** 2;
      const row = (layer, head, query) => {
        const start = from + ((layer * heads + head) * length + query) * length;
        return Array.from(shown.bytes.subarray(start, start + (config.causal ? query + 1 : length)), each => each / 255);
      };
      const axis = count => Array.from({ length: count }, (_, at) => at);
      const predictions = Object.fromEntries(config.readout.map((position, at) => [position, shown.predictions[sequence.example][at]]));
      return { predictions, patterns: axis(layers).map(layer => axis(heads).map(head => axis(length).map(query => row(layer, head, query)))) };
    }

    answered(predictions, clean) {
      const { row, sequence } = this.explorer, read = sequence.of(this.model).read(), at = this.config.readout.indexOf(row);
      if (at < 0) return null;
      if (this.model.outputs === "vectors") return vectors(this.model, read.targets?.[at], read.symbols ?? [], predictions[row], clean && clean[row]);
      const target = read.targets ? read.targets[at] : -1;
      return classes(this.model, target < 0 ? null : target, predictions[row], clean && clean[row]);
    }

    async draw() {
      this.drawTime();
      this.drawChoices();
      const { explorer } = this, { read } = explorer, turn = this.turn = (this.turn ?? 0) + 1, found = await this.found();
      if (turn !== this.turn) return; // what was asked for later has been drawn
      this.pattern = found.patterns[this.layer][this.head];
      const touched = this.edits.filter(each => each.layer === this.layer && each.head === this.head);
      this.matrix.draw({ pattern: this.pattern, labels: read.labels, roles: read.roles, row: explorer.row,
        changed: read.rows.flatMap((_, at) => (touched.some(each => each.rows === null || each.rows.includes(at)) ? [at] : [])) });
      this.point(null);
      const answer = this.answered(found.predictions, found.clean?.predictions);
      this.title.textContent = `Answer at row ${this.named(explorer.row)}`;
      this.answer.replaceChildren(answer ? answer.drawn : element("p", {}, "No answer is asked here: choose another row."));
      const was = found.clean ? this.answered(found.clean.predictions, null) : null;
      const shares = this.pattern[explorer.row], key = best(shares);
      const reads = shares[key] > 0 ? `gives most of its attention, ${shares[key].toFixed(2)}, to ${this.named(key)}` : "attends to nothing";
      this.summary.textContent = `${this.model.name}, step ${this.shown.step.toLocaleString("en")}. In head ${this.layer}.${this.head}, row ${this.named(explorer.row)} ${reads}.`
        + (answer ? ` The answer is ${answer.said}${answer.right}.` : "") + (was && was.said !== answer.said ? ` Without the edits: ${was.said}.` : "");
      this.canvas.setAttribute("aria-label", `Attention of head ${this.layer}.${this.head}, ${read.rows.length} rows: arrow keys move, Enter chooses a row. ${this.summary.textContent}`);
    }

    named(at) { return `${this.explorer.read.roles[at]} (${this.explorer.read.labels[at]})`; }

    point(cell) {
      if (!this.pattern || !this.explorer.read) return;
      const share = cell && this.pattern[cell.row]?.[cell.key];
      this.cell.textContent = !cell ? "Each row reads columns; the colour shows the square root of the attention. Point at a cell for its value; choose a row to see its answer."
        : share === undefined ? `${this.named(cell.row)} cannot see ${this.named(cell.key)}, which comes later`
        : `${this.named(cell.row)} reads ${this.named(cell.key)}: ${share.toFixed(3)}`;
    }

    drawChoices() {
      const { layers, heads } = this.config, { costs } = this.shown;
      this.chooser.value = String(this.at);
      this.heads.replaceChildren(...Array.from({ length: layers * heads }, (_, at) => {
        const layer = Math.floor(at / heads), head = at % heads, cost = costs[layer][head];
        return option([`${layer}.${head}`, `${layer}.${head} (without it ${cost < 0 ? "−" : "+"}${Math.abs(cost).toFixed(2)})`]);
      }));
      this.heads.value = `${this.layer}.${this.head}`;
      this.editing.hidden = !this.shown.weights;
      const kinds = [...new Set(this.explorer.read.roles.map(role => role.split(" ")[0]))].filter(kind => kind !== "place" && kind !== "position");
      const kept = this.which.value || "all";
      this.which.replaceChildren(...[["all", "all rows"], ["row", "the chosen row"], ...kinds.map(kind => [kind, `rows ${kind}`])].map(option));
      this.which.value = [...this.which.options].some(each => each.value === kept) ? kept : "all";
      this.how.value = this.edits.find(this.same(this.rowsOf(this.which.value)))?.as ?? "";
      this.listed.replaceChildren(...this.edits.map(edit => {
        const where = edit.rows === null ? "all rows" : edit.rows.length > 3 ? `${edit.rows.length} rows` : edit.rows.map(at => this.explorer.read.roles[at] ?? at + 1).join(", ");
        const button = element("button", { type: "button" }, `${edit.layer}.${edit.head} reads ${edit.as === "zero" ? "no token" : "all tokens equally"} in ${where} `,
          element("span", { "aria-hidden": "true" }, "✕"), element("span", { class: "unseen" }, "(undo)"));
        button.addEventListener("click", () => this.explorer.changed(() => { this.edits = this.edits.filter(each => each !== edit); }));
        return button;
      }));
    }

    drawTime() {
      const { checkpoints } = this.model, words = `step ${this.shown.step.toLocaleString("en")}`;
      this.player.hidden = this.slider.parentElement.hidden = checkpoints.length < 2;
      this.slider.max = String(checkpoints.length - 1);
      this.slider.value = String(this.checkpoint);
      this.slider.setAttribute("aria-valuetext", words);
      this.now.textContent = words;
    }
  }

  // The whole block.
  class Explorer {
    constructor(figure) {
      this.figure = figure;
      this.models = JSON.parse(figure.querySelector(".explorer-data").textContent);
      this.form = figure.querySelector("form");
      this.room = figure.querySelector(".panels");
      const [model] = this.models, { config } = model.shape, last = model.checkpoints.length - 1;
      const most = best(model.checkpoints[last].costs.flat());
      this.row = config.readout.at(-1);
      this.sequence = new Sequence(model);
      this.open([{ at: 0, checkpoint: last, edits: [], layer: Math.floor(most / config.heads), head: most % config.heads }]);
      this.listen();
    }

    async begin() {
      this.restore();
      await this.update();
      this.form.hidden = false;
      if (this.mine) this.figure.scrollIntoView();
    }

    open(states) {
      for (const panel of this.panels ?? []) panel.stop();
      this.panels = states.map(state => new Panel(this, state));
      this.room.replaceChildren(...this.panels.map(panel => panel.box));
      this.room.classList.toggle("two", states.length > 1);
    }

    listen() {
      const { example, tokens: typed, symbol, place, compare } = this.form.elements;
      const on = (control, event, does) => control.addEventListener(event, () => this.changed(does));
      on(example, "change", () => { if (example.value !== "own") this.sequence = new Sequence(this.sequence.model, Number(example.value)); else typed.focus(); });
      on(typed, "input", () => { this.sequence.typed = typed.value; });
      on(this.form.querySelector(".redraw"), "click", () => { this.sequence.drawn += 1; });
      on(symbol, "change", () => { this.sequence.places = { ...this.sequence.places, [place.value]: Number(symbol.value) }; });
      place.addEventListener("change", () => this.drawForm());
      on(compare, "change", () => { const [{ state }] = this.panels; this.open(compare.checked ? [state, { ...state, edits: [] }] : [state]); });
      this.form.addEventListener("submit", event => event.preventDefault());
      window.addEventListener("hashchange", () => { if (this.mine) { this.restore(); this.update(); this.figure.scrollIntoView(); } });
    }

    // Something was changed by the reader: all is drawn anew, and the address follows.
    changed(does) { does(); this.update(); this.keep(); }

    async update() {
      const [{ model }] = this.panels;
      if (this.sequence.model !== model) this.sequence = new Sequence(model, this.sequence.example);
      let words = "";
      try {
        const read = this.sequence.read();
        this.read = read;
        const task = ({ shape, tokens, inputs }) => JSON.stringify([tokens, shape.config.length, (shape.config.inputs === "vectors" || this.sequence.typed === null) && inputs]);
        if (this.panels.some(panel => task(panel.model) !== task(model))) {
          throw new Refusal("Expected two models of one task side by side, found models of two tasks: choose another one.");
        }
        this.row = Math.min(this.row, read.rows.length - 1);
        for (const panel of this.panels) await panel.draw();
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        words = error.message;
      }
      this.figure.querySelector(".complaint").textContent = words;
      this.room.classList.toggle("is-off", Boolean(words));
      this.drawForm();
    }

    drawForm() {
      const { example, tokens: typed, symbol, place, compare } = this.form.elements, { model } = this.sequence;
      const tokens = model.shape.config.inputs === "tokens", live = model.checkpoints.some(each => each.weights);
      example.replaceChildren(...[...model.inputs.map((_, at) => [at, `sample ${at + 1}`]), ...(tokens && live ? [["own", "your own"]] : [])].map(option));
      example.value = this.sequence.typed === null ? String(this.sequence.example) : "own";
      typed.closest("label").hidden = !tokens || !live;
      this.form.querySelector(".exchange").hidden = tokens || !model.symbol_size || !live;
      compare.checked = this.panels.length > 1;
      if (tokens) {
        const words = this.sequence.typed ?? model.inputs[this.sequence.example].map(id => model.tokens[id]).join(" ");
        if (typed.value !== words) typed.value = words;
      } else if (this.read?.symbols) {
        const at = place.value || "0";
        place.replaceChildren(...this.read.roles.map((role, row) => option([row, `${row + 1}: ${role}`])));
        place.value = at;
        symbol.replaceChildren(...this.read.symbols.map((_, number) => option([number, letter(number)])));
        symbol.value = String(this.read.held[Number(place.value)]);
      }
    }

    // The address keeps the view, as JSON.  Whatever in it does not fit this page is left as it was.

    get mine() { return location.hash.startsWith(`#${this.figure.id}?`); }

    keep() {
      const { sequence: { example, typed, drawn, places }, row } = this;
      const views = this.panels.map(({ model, shown, layer, head, edits }) => ({ member: model.member, step: shown.step, layer, head, edits }));
      history.replaceState(null, "", `#${this.figure.id}?${encodeURIComponent(JSON.stringify({ example, typed, drawn, places, row, views }))}`);
    }

    restore() {
      if (!this.mine) return;
      let kept = null;
      try { kept = JSON.parse(decodeURIComponent(location.hash.slice(this.figure.id.length + 2))); } catch { /* no view of ours */ }
      if (typeof kept !== "object" || kept === null) return;
      const states = [kept.views].flat().slice(0, 2).map(view => this.stateOf(view)).filter(Boolean);
      if (states.length) this.open(states);
      const { model } = this.panels[0], { length } = model.shape.config, sequence = new Sequence(model, below(kept.example, model.inputs.length) ? kept.example : 0);
      this.sequence = sequence;
      if (typeof kept.typed === "string" && model.tokens.length) sequence.typed = kept.typed.slice(0, 2000);
      if (below(kept.drawn, 1e9)) sequence.drawn = kept.drawn;
      const count = model.tokens.length ? 0 : sequence.read().symbols.length;
      sequence.places = Object.fromEntries(Object.entries(kept.places ?? {}).filter(([at, to]) => below(Number(at), length) && below(to, count)));
      if (below(kept.row, length)) this.row = kept.row;
    }

    stateOf(view) {
      const at = this.models.findIndex(model => model.member === view?.member);
      if (at < 0) return null;
      const { shape: { config }, checkpoints } = this.models[at], checkpoint = checkpoints.findIndex(each => each.step === view.step);
      const known = each => below(each?.layer, config.layers) && below(each.head, config.heads);
      const fits = each => known(each) && ["zero", "uniform"].includes(each.as) && (each.rows === null || [each.rows].flat().every(row => below(row, config.length)));
      const edits = [view.edits ?? []].flat().slice(0, 50).filter(fits).map(({ layer, head, rows, as }) => ({ layer, head, rows: rows && [rows].flat(), as }));
      return known(view) ? { at, checkpoint: checkpoint < 0 ? checkpoints.length - 1 : checkpoint, layer: view.layer, head: view.head, edits } : null;
    }
  }

  for (const figure of document.querySelectorAll("figure.explorer")) globalThis.hopscopeLater(figure, () => new Explorer(figure).begin());
})();
