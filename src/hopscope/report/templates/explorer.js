"use strict";
// The explorer: models of the page, run in the page on any input, looked into and edited.  Its view is kept in the address.
(() => {
  const element = globalThis.hopscopeElement;
  const { Refusal, load, run, unpack } = globalThis.hopscopeForward;
  const inputs = globalThis.hopscopeInputs, answers = globalThis.hopscopeAnswer, Matrix = globalThis.hopscopeMatrix;
  const { mapping } = globalThis.hopscopePermutation;
  const PACE = 700; // milliseconds for each checkpoint
  const LOST_IS = { tokens: "the loss of this answer", vectors: "the squared error of this answer" };

  // What is put to the models: an example, or what the reader made of it.

  class Sequence {
    constructor(task) {
      Object.assign(this, { task, example: 0, typed: null, drawn: 0, places: {} });
    }

    get given() {
      return this.task.examples[this.example];
    }

    choose(example) {
      Object.assign(this, { example, typed: null, drawn: 0, places: {} });
    }

    // Inputs, labels and roles by position, and what is known of the right answers.
    read(config) {
      const { task, given } = this;
      if (task.inputs === "tokens") {
        const ids = (this.typed === null ? given.inputs : inputs.parse(this.typed, task.tokens, this.most(config))).slice(0, config.length);
        const known = this.typed === null ? given.targets : null;
        const place = at => (task.kind === "permutation" ? `${"xy"[at % 2]} ${Math.floor(at / 2) + 1}` : `place ${at + 1}`);
        const roles = ids.map((_, at) => (this.typed === null ? given.roles[at] : place(at)));
        if (task.kind === "permutation") mapping(ids, task.tokens.length - 1); // refuses what no permutation allows
        return { rows: ids, labels: ids.map(id => task.tokens[id]), roles, targets: known };
      }
      return this.readVectors(config);
    }

    most(config) {
      return config.length + (this.task.kind === "permutation" ? 1 : 0);
    }

    readVectors(config) {
      const { task, given } = this, size = task.symbol_size || config.input_size;
      const vectors = inputs.rows(given.inputs, given.size), { different, of } = inputs.symbols(vectors, size);
      const targets = typeof given.targets === "string" ? inputs.rows(given.targets, config.readout.length) : given.targets;
      const now = task.symbol_size ? inputs.redrawn(different, this.drawn) : different;
      const parts = task.symbol_size && task.outputs === "vectors" ? inputs.parts(targets, different, size) : null;
      const rows = task.symbol_size ? inputs.rebuilt(vectors, size, of, now, this.places) : vectors;
      const held = of.map((symbol, at) => this.places[at] ?? symbol);
      return { rows, labels: held.map(inputs.letter), roles: given.roles, targets, parts, symbols: now, held };
    }
  }

  // One model at a checkpoint, with what is edited in it.

  class Panel {
    constructor(explorer, state) {
      Object.assign(this, { explorer, ...state, edits: [...state.edits], timer: null, effects: null });
      this.box = element("section", { class: "panel", "aria-label": "Model" });
      this.build();
    }

    get model() {
      return this.explorer.data.models[this.at];
    }

    get config() {
      return this.explorer.data.shapes[this.model.shape].config;
    }

    get task() {
      return this.explorer.data.tasks[this.model.task];
    }

    get state() {
      const { at, checkpoint, layer, head, edits } = this;
      return { at, checkpoint, layer, head, edits };
    }

    build() {
      const label = (words, control) => element("label", {}, words, control);
      this.chooser = element("select", { name: "model" });
      const groups = new Map();
      this.explorer.data.models.forEach((model, at) => {
        if (!groups.has(model.configuration)) {
          groups.set(model.configuration, element("optgroup", { label: model.configuration || "models" }));
          this.chooser.append(groups.get(model.configuration));
        }
        groups.get(model.configuration).append(element("option", { value: at }, model.name));
      });
      this.heads = element("select", { name: "head" });
      this.slider = element("input", { type: "range", name: "checkpoint", min: 0, step: 1 });
      this.player = element("button", { type: "button", class: "play" });
      this.now = element("output", { class: "now" });
      this.how = element("select", { name: "how" },
        ...[["", "as it learned"], ["zero", "nothing (ablated)"], ["uniform", "everything alike"]].map(([value, words]) => element("option", { value }, words)));
      this.which = element("select", { name: "rows" });
      this.listed = element("p", { class: "edits" });
      this.canvas = element("canvas", { class: "matrix", tabindex: 0, role: "img" });
      this.cell = element("p", { class: "cell-value", "aria-live": "polite" });
      this.title = element("p", { class: "answer-title" });
      this.answer = element("div", { class: "answer" });
      this.summary = element("p", { class: "summary", role: "status" });
      this.matrix = new Matrix(this.canvas, row => this.explorer.chooseRow(row), cell => this.point(cell));
      this.time = element("div", { class: "time" }, this.player, label("Checkpoint", this.slider), this.now);
      this.box.append(
        element("div", { class: "choices" }, label("Model", this.chooser), label("Head", this.heads)),
        this.time, this.summary,
        element("div", { class: "board" },
          element("div", { class: "map" }, element("div", { class: "frame" }, this.canvas), this.cell),
          element("div", { class: "said" }, this.title, this.answer,
            element("div", { class: "choices edit" }, label("This head reads", this.how), label("in", this.which)), this.listed)),
      );
      this.listen();
    }

    listen() {
      this.chooser.addEventListener("change", () => this.explorer.changed(() => this.take(Number(this.chooser.value))));
      this.heads.addEventListener("change", () => this.explorer.changed(() => {
        [this.layer, this.head] = this.heads.value.split(".").map(Number);
      }));
      this.slider.addEventListener("input", () => {
        const checkpoint = Number(this.slider.value);
        this.stop();
        this.explorer.changed(() => { this.checkpoint = checkpoint; });
      });
      this.player.addEventListener("click", () => (this.timer === null ? this.play() : this.stop()));
      this.how.addEventListener("change", () => this.explorer.changed(() => this.edit(this.how.value)));
      this.which.addEventListener("change", () => this.explorer.changed(() => { if (this.how.value) this.edit(this.how.value); }));
    }

    // Another model: its last checkpoint, the same head where it has one, and no edits.
    take(at) {
      this.stop();
      this.at = at;
      this.checkpoint = this.model.checkpoints.length - 1;
      this.layer = Math.min(this.layer, this.config.layers - 1);
      this.head = Math.min(this.head, this.config.heads - 1);
      this.edits = [];
    }

    play() {
      const last = this.model.checkpoints.length - 1;
      if (this.checkpoint === last) this.explorer.changed(() => { this.checkpoint = 0; });
      this.timer = setInterval(() => {
        this.explorer.changed(() => { this.checkpoint += 1; });
        if (this.checkpoint >= last) this.stop();
      }, PACE);
      this.drawTime();
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      this.drawTime();
    }

    // Edits: one for each head and choice of rows.

    rowsOf(choice) {
      if (choice === "all") return null;
      if (choice === "row") return [this.explorer.row];
      return this.explorer.read.roles.flatMap((role, at) => (role.split(" ")[0] === choice ? [at] : []));
    }

    edit(as) {
      const rows = this.rowsOf(this.which.value), same = each => each.layer === this.layer && each.head === this.head && String(each.rows) === String(rows);
      this.edits = this.edits.filter(each => !same(each));
      if (as) this.edits.push({ layer: this.layer, head: this.head, rows, as });
    }

    // What is computed.

    loaded() {
      const kept = this.explorer.kept, name = `${this.at}.${this.checkpoint}`, { config, layout } = this.explorer.data.shapes[this.model.shape];
      const { weights, format } = this.model.checkpoints[this.checkpoint];
      kept[name] ??= load(config, layout, unpack(weights, format));
      return kept[name];
    }

    asked(predictions, clean) {
      const { task } = this, { row, read } = this.explorer, at = this.config.readout.indexOf(row);
      if (task.outputs === "classes") {
        const question = answers.asked(task, read.rows, row, read.targets, this.config.readout);
        return question && answers.classes(task, question, predictions[row], clean && clean[row]);
      }
      if (at < 0) return null;
      const targets = read.parts ? read.parts[at].map(symbol => ({ symbol })) : [{ symbol: -1, vector: read.targets[at] }];
      return answers.vectors(task, targets, read.symbols, predictions[row], clean && clean[row]);
    }

    draw() {
      const { explorer } = this, { read } = explorer, model = this.loaded();
      const found = run(model, read.rows, this.edits), clean = this.edits.length ? run(model, read.rows) : null;
      this.drawChoices();
      this.drawTime();
      const pattern = found.patterns[this.layer][this.head], touched = this.edits.filter(each => each.layer === this.layer && each.head === this.head);
      this.shown = pattern;
      this.matrix.draw({
        pattern, labels: read.labels, roles: read.roles, row: explorer.row,
        changed: read.rows.flatMap((_, at) => (touched.some(each => each.rows === null || each.rows.includes(at)) ? [at] : [])),
      });
      this.point(null);
      const answer = this.asked(found.predictions, clean && clean.predictions);
      this.title.textContent = `Answer at row ${this.named(explorer.row)}`;
      this.answer.replaceChildren(...(answer ? [answer.drawn] : [element("p", {}, "This row is not read out: choose another one.")]));
      if (answer?.hidden > 0) this.answer.append(element("p", { class: "hidden-bars" }, `${answer.hidden} less probable answers are not shown.`));
      this.summary.textContent = this.words(pattern, answer, clean ? this.asked(clean.predictions, null) : null);
      this.canvas.setAttribute("aria-label", `Attention of head ${this.layer}.${this.head}, ${read.rows.length} rows: arrow keys move, Enter chooses a row. ${this.summary.textContent}`);
      if (this.timer === null) this.measure(model, answer);
    }

    named(at) {
      const { roles, labels } = this.explorer.read;
      return `${roles[at]} (${labels[at]})`;
    }

    words(pattern, answer, before) {
      const { row, read } = this.explorer, shares = pattern[row];
      const key = shares.reduce((best, share, at) => (share > shares[best] ? at : best), 0);
      const step = this.model.checkpoints[this.checkpoint].step.toLocaleString("en");
      const reads = shares[key] > 0 ? `gives most of its attention, ${shares[key].toFixed(2)}, to ${this.named(key)}` : "attends to nothing";
      const start = `${this.model.name}, step ${step}. In head ${this.layer}.${this.head}, row ${this.named(row)} ${reads}.`;
      if (!answer) return start;
      const right = answer.right === null ? "" : answer.right ? ", which is right" : `; right would be ${answer.target}`;
      const was = before && before.said !== answer.said ? ` Without the edits: ${before.said}.` : "";
      return `${start} The answer is ${answer.said}${right}.${was}`;
    }

    point(cell) {
      if (!this.shown || !this.explorer.read) return;
      const share = cell && this.shown[cell.row]?.[cell.key];
      this.cell.textContent = !cell ? "Rows read, columns are read; the stronger the colour, the more (by its square root). Point at a cell for its weight; choose a row to see its answer."
        : share === undefined ? `${this.named(cell.row)} cannot see ${this.named(cell.key)}, which comes later`
        : `${this.named(cell.row)} reads ${this.named(cell.key)}: ${share.toFixed(3)}`;
    }

    // What each head is worth here: what the answer loses if the head reads nothing.  Head by head, so that nothing waits.
    measure(model, answer) {
      clearTimeout(this.waiting);
      const { heads, layers } = this.config, costs = [];
      if (!answer || answer.loss === null || heads * layers < 2 || this.edits.length) return this.drawHeads(null);
      this.drawHeads(null);
      const next = () => {
        const layer = Math.floor(costs.length / heads), head = costs.length % heads;
        const without = run(model, this.explorer.read.rows, [{ layer, head, rows: null, as: "zero" }]);
        costs.push(this.asked(without.predictions, null).loss - answer.loss);
        if (costs.length < heads * layers) this.waiting = setTimeout(next, 0);
        else this.drawHeads(costs);
      };
      this.waiting = setTimeout(next, 30);
    }

    // Controls.

    drawHeads(costs) {
      const { heads, layers } = this.config;
      this.heads.title = `The number is what ${LOST_IS[this.task.outputs === "classes" ? "tokens" : "vectors"]} rises by if the head reads nothing.`;
      const options = Array.from({ length: heads * layers }, (_, at) => {
        const layer = Math.floor(at / heads), head = at % heads, cost = costs ? ` (without it: ${costs[at] < 0 ? "−" : "+"}${Math.abs(costs[at]).toFixed(2)})` : "";
        return element("option", { value: `${layer}.${head}` }, `${layer}.${head}${cost}`);
      });
      this.heads.replaceChildren(...options);
      this.heads.value = `${this.layer}.${this.head}`;
    }

    drawChoices() {
      this.chooser.value = String(this.at);
      const kinds = [...new Set(this.explorer.read.roles.map(role => role.split(" ")[0]))].filter(kind => kind !== "place" && !/^\d/.test(kind));
      const kept = this.which.value || "all";
      this.which.replaceChildren(...[["all", "all rows"], ["row", "the chosen row"], ...kinds.map(kind => [kind, `rows ${kind}`])]
        .map(([value, words]) => element("option", { value }, words)));
      this.which.value = [...this.which.options].some(each => each.value === kept) ? kept : "all";
      const rows = String(this.rowsOf(this.which.value));
      this.how.value = this.edits.find(each => each.layer === this.layer && each.head === this.head && String(each.rows) === rows)?.as ?? "";
      this.listed.replaceChildren(...this.edits.map(edit => {
        const where = edit.rows === null ? "all rows" : edit.rows.length > 3 ? `${edit.rows.length} rows` : edit.rows.map(at => this.explorer.read.roles[at] ?? at + 1).join(", ");
        const button = element("button", { type: "button" }, `${edit.layer}.${edit.head} reads ${edit.as === "zero" ? "nothing" : "everything alike"} in ${where} `, element("span", { "aria-hidden": "true" }, "✕"), element("span", { class: "unseen" }, "(undo)"));
        button.addEventListener("click", () => this.explorer.changed(() => { this.edits = this.edits.filter(each => each !== edit); }));
        return button;
      }));
    }

    drawTime() {
      const { checkpoints } = this.model;
      this.player.hidden = this.slider.parentElement.hidden = checkpoints.length < 2;
      this.slider.max = String(checkpoints.length - 1);
      this.slider.value = String(this.checkpoint);
      const words = `step ${checkpoints[this.checkpoint].step.toLocaleString("en")}`;
      this.slider.setAttribute("aria-valuetext", words);
      this.now.textContent = checkpoints.length < 2 ? `${words}, the only checkpoint of this model here` : words;
      this.player.replaceChildren(element("span", { "aria-hidden": "true" }, this.timer === null ? "▶" : "❚❚"), this.timer === null ? " Play" : " Pause");
    }
  }

  // The whole block.

  class Explorer {
    constructor(figure) {
      this.figure = figure;
      this.data = JSON.parse(figure.querySelector(".explorer-data").textContent);
      this.kept = {};
      this.form = figure.querySelector("form");
      this.room = figure.querySelector(".panels");
      this.complaint = figure.querySelector(".complaint");
      this.panels = [];
      this.reset();
      this.listen();
      this.restore();
      this.update();
      this.form.hidden = false;
      if (this.mine()) figure.scrollIntoView();
    }

    reset() {
      const { start, models } = this.data, { config } = this.data.shapes[models[0].shape];
      this.row = start.row;
      this.sequence = new Sequence(this.data.tasks[models[0].task]);
      this.sequence.choose(Math.min(start.example, this.sequence.task.examples.length - 1));
      this.open([{ at: 0, checkpoint: models[0].checkpoints.length - 1, edits: [],
        layer: Math.min(start.layer, config.layers - 1), head: Math.min(start.head, config.heads - 1) }]);
    }

    open(states) {
      for (const panel of this.panels) panel.stop();
      this.panels = states.map(state => new Panel(this, state));
      this.room.replaceChildren(...this.panels.map(panel => panel.box));
      this.room.classList.toggle("two", states.length > 1);
    }

    listen() {
      const { example, tokens: typed, symbol, place, compare } = this.form.elements, on = (control, event, does) => control?.addEventListener(event, does);
      on(example, "change", () => this.changed(() => { if (example.value !== "own") this.sequence.choose(Number(example.value)); else typed.focus(); }));
      on(typed, "input", () => this.changed(() => { this.sequence.typed = typed.value; }));
      on(this.form.querySelector(".redraw"), "click", () => this.changed(() => { this.sequence.drawn += 1; }));
      on(symbol, "change", () => this.changed(() => { this.sequence.places = { ...this.sequence.places, [place.value]: Number(symbol.value) }; }));
      on(place, "change", () => this.drawForm());
      on(compare, "change", () => this.changed(() => {
        const [first] = this.panels, other = { ...first.state, edits: [] };
        this.open(compare.checked ? [first.state, other] : [first.state]);
      }));
      on(this.form, "submit", event => event.preventDefault());
      window.addEventListener("hashchange", () => { if (this.mine()) { this.restore(); this.update(); this.figure.scrollIntoView(); } });
      window.matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", () => this.update());
      let width = this.room.clientWidth;
      new ResizeObserver(() => { if (this.room.clientWidth !== width) { width = this.room.clientWidth; this.update(); } }).observe(this.room);
    }

    chooseRow(row) {
      this.changed(() => { this.row = row; });
    }

    // Something was changed by the reader: all is computed anew, and the address follows.
    changed(does) {
      does();
      this.update();
      this.keep();
    }

    update() {
      const [{ config, task }] = this.panels;
      if (this.sequence.task !== task) {
        const before = this.sequence;
        this.sequence = new Sequence(task);
        this.sequence.choose(Math.min(before.example, task.examples.length - 1));
      }
      try {
        this.read = this.sequence.read(config);
        const stray = this.panels.find(panel => panel.model.task !== this.panels[0].model.task);
        if (stray) throw new Refusal("Expected two models of the same task side by side, found models of two tasks: choose another one.");
        this.row = Math.min(this.row, this.read.rows.length - 1);
        for (const panel of this.panels) panel.draw();
        this.say("");
      } catch (error) {
        this.say(error.message);
        if (!(error instanceof Refusal)) throw error;
      }
      this.drawForm();
    }

    say(words) {
      this.complaint.textContent = words;
      this.room.classList.toggle("is-off", Boolean(words));
      const { tokens: typed } = this.form.elements;
      if (typed) words ? typed.setAttribute("aria-invalid", "true") : typed.removeAttribute("aria-invalid");
    }

    drawForm() {
      const { example, tokens: typed, symbol, place, compare } = this.form.elements, { task } = this.sequence, tokens = task.inputs === "tokens";
      const options = [...task.examples.map((each, at) => element("option", { value: at }, each.name)), ...(tokens ? [element("option", { value: "own" }, "your own")] : [])];
      example.replaceChildren(...options);
      example.value = this.sequence.typed === null ? String(this.sequence.example) : "own";
      typed.closest("label").hidden = !tokens;
      this.form.querySelector(".exchange").hidden = tokens || !task.symbol_size;
      compare.checked = this.panels.length > 1;
      if (tokens) {
        const words = this.sequence.typed ?? inputs.write(this.sequence.given.inputs, task.tokens, task.kind === "permutation");
        if (typed.value !== words) typed.value = words;
      } else if (this.read?.symbols) {
        const at = place.value || "0";
        place.replaceChildren(...this.read.roles.map((role, row) => element("option", { value: row }, `${row + 1}: ${role}`)));
        place.value = at;
        symbol.replaceChildren(...this.read.symbols.map((_, number) => element("option", { value: number }, inputs.letter(number))));
        symbol.value = String(this.read.held[Number(place.value)]);
      }
    }

    // The address keeps the view: #ID?e=EXAMPLE&r=ROW&t=TYPED&d=DRAWN&p=PLACE.SYMBOL…&v=MEMBER.STEP.LAYER.HEAD~EDIT…

    mine() {
      return location.hash.startsWith(`#${this.figure.id}?`);
    }

    keep() {
      const { sequence } = this, edit = each => [each.layer, each.head, each.as[0], each.rows === null ? "all" : each.rows.join("-")].join(".");
      const fields = new URLSearchParams({ e: sequence.example, r: this.row });
      if (sequence.typed !== null) fields.set("t", sequence.typed);
      if (sequence.drawn) fields.set("d", sequence.drawn);
      const places = Object.entries(sequence.places).map(each => each.join("."));
      if (places.length) fields.set("p", places.join("_"));
      for (const panel of this.panels) {
        const { member, checkpoints } = panel.model;
        fields.append("v", [[member, checkpoints[panel.checkpoint].step, panel.layer, panel.head].join("."), ...panel.edits.map(edit)].join("~"));
      }
      history.replaceState(null, "", `#${this.figure.id}?${fields}`);
    }

    // A view from an address; whatever in it does not fit this page is left as it was.
    restore() {
      if (!this.mine()) return;
      const fields = new URLSearchParams(location.hash.slice(this.figure.id.length + 2)), whole = text => (/^\d{1,9}$/.test(text ?? "") ? Number(text) : null);
      const states = fields.getAll("v").slice(0, 2).map(text => this.stateOf(text, whole)).filter(Boolean);
      if (states.length) this.open(states);
      this.sequence = new Sequence(this.panels[0].task);
      this.sequence.choose(Math.min(whole(fields.get("e")) ?? 0, this.sequence.task.examples.length - 1));
      if (fields.has("t") && this.sequence.task.inputs === "tokens") this.sequence.typed = fields.get("t").slice(0, 2000);
      this.sequence.drawn = whole(fields.get("d")) ?? 0;
      this.sequence.places = this.placesOf(fields.get("p") ?? "", whole);
      this.row = whole(fields.get("r")) ?? this.row;
    }

    placesOf(text, whole) {
      if (!this.sequence.task.symbol_size) return {};
      const { of, different } = inputs.symbols(inputs.rows(this.sequence.given.inputs, this.sequence.given.size), this.sequence.task.symbol_size);
      const pairs = text.split("_").map(each => each.split(".").map(whole));
      return Object.fromEntries(pairs.filter(([at, to]) => at !== null && at < of.length && to !== null && to < different.length));
    }

    stateOf(text, whole) {
      const [place, ...edits] = text.split("~"), [member, step, layer, head] = place.split(".").map(whole);
      const at = this.data.models.findIndex(model => model.member === member);
      if (at < 0) return null;
      const model = this.data.models[at], { config } = this.data.shapes[model.shape], checkpoint = model.checkpoints.findIndex(each => each.step === step);
      const known = (one, other) => one !== null && other !== null && one < config.layers && other < config.heads;
      if (!known(layer, head)) return null;
      const read = edits.slice(0, 50).map(edit => {
        const [of, which, as, rows] = edit.split(".");
        const list = rows === "all" ? null : (rows ?? "").split("-").map(whole);
        const fits = known(whole(of), whole(which)) && "uz".includes(as) && (list === null || !list.includes(null));
        return fits ? { layer: Number(of), head: Number(which), as: as === "z" ? "zero" : "uniform", rows: list } : null;
      });
      return { at, checkpoint: checkpoint < 0 ? model.checkpoints.length - 1 : checkpoint, layer, head, edits: read.filter(Boolean) };
    }
  }

  function start(figure) {
    try {
      new Explorer(figure);
    } catch (error) {
      figure.querySelector(".complaint").textContent = `The explorer could not start: ${error.message}`;
      console.error(error);
    }
  }

  // Weights are unpacked and run when a reader comes near, or at once where the address asks for a view of them.
  for (const figure of document.querySelectorAll("figure.explorer")) {
    if (!figure.querySelector(".explorer-data")) continue;
    if (location.hash.startsWith(`#${figure.id}?`)) start(figure);
    else globalThis.hopscopeLater(figure, () => start(figure));
  }
})();
