"use strict";
// Runs a model of the page on the reader's sequence and draws its answers as the worked sequences are drawn.
(() => {
  const element = globalThis.hopscopeElement;
  const { Refusal, load, run, parse, mapping, questions } = globalThis.hopscopeForward;

  const MARKS = { target: "✓", used: "✕", recall: "←", elimination: "←" };

  const unseen = words => element("span", { class: "unseen" }, words);
  const percent = share => `${(100 * share).toFixed(2)}%`;

  // As hopscope.report.worked.format_probability: never 0 or 1 where it is neither.
  function written(value) {
    if (value === 0 || value === 1) return value.toFixed(3);
    if (value < 0.0005) return "<0.001";
    if (value < 0.99) return value.toFixed(3);
    const texts = [4, 5, 6].map(decimals => value.toFixed(decimals));
    return texts.find(text => Number(text) < 1) ?? ">0.999999";
  }

  const grouped = tokens => tokens.flatMap((x, at) => (at % 2 ? [] : [[x, tokens[at + 1] ?? "?"]]));
  const inWords = tokens => grouped(tokens).map(([x, y]) => `${x}→${y}`).join(" ");

  function chips(tokens) {
    const cells = grouped(tokens).map(([x, y]) =>
      element("span", { class: "pair" },
        element("span", { class: "chip chip-x" }, String(x)),
        element("span", { class: `chip chip-${y === "?" ? "asked" : "y"}` }, String(y)),
      ),
    );
    return element("span", { class: "chips", "aria-hidden": "true" }, ...cells);
  }

  function marksOf(question, value) {
    const holds = {
      target: value === question.target,
      used: question.used.includes(value),
      recall: value === question.recall,
      elimination: value === question.elimination,
    };
    return Object.keys(MARKS).filter(kind => holds[kind]);
  }

  function bar(question, value, probability) {
    const ideal = question.ideal[value - 1];
    const found = marksOf(question, value);
    const marks = found.map(kind =>
      element("span", { class: `mark mark-${kind}` }, element("span", { "aria-hidden": "true" }, `${MARKS[kind]} `), kind),
    );
    return element("tr", { class: ["bar", ...found.map(kind => `is-${kind}`)].join(" ") },
      element("th", { scope: "row" }, String(value)),
      element("td", { class: "drawn" },
        element("span", { class: "track", "aria-hidden": "true" },
          element("span", { class: "fill", style: `width: ${percent(probability)}` }),
          element("span", { class: "tick", style: `left: ${percent(ideal)}` }),
        ),
        unseen(written(ideal)),
      ),
      element("td", { class: "ours" }, written(probability)),
      element("td", { class: "marks" }, ...marks),
    );
  }

  function step(question, at, probabilities) {
    const column = (...children) => element("th", { scope: "col" }, ...children);
    const head = element("tr", {}, column("y"), column(unseen("ideal observer")), column("model"), column(unseen("marks")));
    const rows = question.ideal.map((_, n) => bar(question, n + 1, probabilities[n + 1]));
    return element("li", { class: "step" },
      element("p", { class: "asked" },
        element("b", {}, `Step ${at + 1}`), unseen(`, seen ${inWords(question.seen)}`), chips(question.seen),
      ),
      element("p", { class: "known" },
        `used: ${question.used.join(", ") || "none"}; target: ${question.target ?? "not known"}`,
      ),
      element("table", { class: "bars" }, element("thead", {}, head), element("tbody", {}, ...rows)),
    );
  }

  function attentionTable(table, tokens, patterns) {
    const last = tokens.length - 1;
    const columns = tokens.map((token, at) => {
      const role = at % 2 ? "y" : "x";
      return element("th", { scope: "col" },
        element("span", { class: "role" }, `${role}${Math.floor(at / 2) + 1}`),
        element("span", { class: `chip chip-${role}` }, String(token)),
      );
    });
    const rows = patterns.map((pattern, head) => {
      const cells = pattern[last].reduce((all, share) => [...all,
        element("td", {},
          element("span", { class: "column", "aria-hidden": "true" }, element("span", { class: "fill", style: `height: ${percent(share)}` })),
          share.toFixed(2),
        ),
      ], []);
      return element("tr", {}, element("th", { scope: "row" }, `head ${head + 1}`), ...cells);
    });
    table.replaceChildren(
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, unseen("head")), ...columns)),
      element("tbody", {}, ...rows),
    );
  }

  function side(tokens, values, heldOut) {
    const whole = mapping(tokens, values);
    if (!whole) return "Several mappings fit.";
    if (!heldOut.length) return "";
    const held = heldOut.some(each => String(each) === String(whole));
    return held ? "The mapping is held out: it never occurs in training." : "The mapping is one of the training mappings.";
  }

  function summary(name, asked, probabilities, place) {
    const best = asked.ideal.map((_, n) => n + 1).reduce((a, b) => (probabilities[b] > probabilities[a] ? b : a));
    const right = asked.target === null ? "" : best === asked.target ? ", which is right" : `; the right one is ${asked.target}`;
    return `${name}, ${inWords(asked.seen)}: the most probable value is ${best} (${written(probabilities[best])})${right}. ${place}`.trim();
  }

  function start(figure) {
    const data = JSON.parse(figure.querySelector(".explorer-data").textContent);
    const models = data.models.map(load);
    const { values } = models[0].config;
    const form = figure.querySelector("form");
    const { model: chosen, preset, tokens: typed } = form.elements;
    const [drawing, complaint, said] = [".drawing", ".complaint", ".summary"].map(each => figure.querySelector(each));

    function draw() {
      const index = Number(chosen.value);
      const tokens = parse(typed.value, values);
      const asked = questions(tokens, values);
      const shown = tokens.slice(0, models[index].config.length);
      const { probabilities, patterns } = run(models[index], shown);
      const of = at => probabilities[2 * at];
      drawing.querySelector(".steps").replaceChildren(...asked.map((each, at) => step(each, at, of(at))));
      // The last x: the token after it, if there is one, is the answer, and the model never sees the last answer.
      const asking = 2 * asked.length - 1;
      attentionTable(drawing.querySelector(".attention"), shown.slice(0, asking), patterns);
      said.textContent = summary(data.models[index].name, asked.at(-1), of(asked.length - 1), side(tokens, values, data.held_out));
      const { file, key } = data.models[index];
      figure.querySelector(".weights").textContent = key ? `${file} · ${key}` : file;
    }

    function update() {
      try {
        draw();
        complaint.textContent = "";
        typed.removeAttribute("aria-invalid");
        drawing.hidden = false;
      } catch (error) {
        complaint.textContent = error.message;
        said.textContent = "";
        typed.setAttribute("aria-invalid", "true");
        drawing.hidden = true;
        if (!(error instanceof Refusal)) throw error;
      }
    }

    function fill() {
      if (preset.value === "own") return;
      const { tokens } = data.sequences[Number(preset.value)];
      typed.value = grouped(tokens).map(pair => pair.join(values < 10 ? "" : " ")).join(values < 10 ? " " : ", ");
    }

    chosen.addEventListener("change", update);
    preset.addEventListener("change", () => { fill(); update(); if (preset.value === "own") typed.focus(); });
    typed.addEventListener("input", () => { preset.value = "own"; update(); });
    form.addEventListener("submit", event => event.preventDefault());
    fill();
    update();
    form.hidden = false;
  }

  for (const figure of document.querySelectorAll("figure.explorer")) {
    try {
      start(figure);
    } catch (error) {
      figure.querySelector(".complaint").textContent = `The explorer could not start: ${error.message}`;
      console.error(error);
    }
  }
})();
