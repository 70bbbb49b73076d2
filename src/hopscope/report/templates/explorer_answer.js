"use strict";
// What a model answers at one row: a bar for each class, or for each symbol that a vector is made of.
globalThis.hopscopeAnswer = (() => {
  const element = globalThis.hopscopeElement;
  const { softmax } = globalThis.hopscopeForward;
  const { letter } = globalThis.hopscopeInputs;
  const { questions } = globalThis.hopscopePermutation;

  const MARKS = { target: "✓", used: "✕", recall: "←", elimination: "←" };
  const MOST_BARS = 10;

  const unseen = words => element("span", { class: "unseen" }, words);
  const percent = share => `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;

  // As hopscope.report.worked.format_probability: never 0 or 1 where it is neither.
  function written(value) {
    if (value === 0 || value === 1) return value.toFixed(3);
    if (value < 0.0005) return "<0.001";
    if (value < 0.99) return value.toFixed(3);
    const texts = [4, 5, 6].map(decimals => value.toFixed(decimals));
    return texts.find(text => Number(text) < 1) ?? ">0.999999";
  }

  const column = (...children) => element("th", { scope: "col" }, ...children);

  function table(columns, rows) {
    return element("table", { class: "bars" },
      element("thead", {}, element("tr", {}, ...columns.map(each => column(each)))), element("tbody", {}, ...rows));
  }

  function track(share, tick) {
    return element("span", { class: "track", "aria-hidden": "true" },
      element("span", { class: "fill", style: `width: ${percent(share)}` }),
      ...(tick === null ? [] : [element("span", { class: "tick", style: `left: ${percent(tick)}` })]),
    );
  }

  // Classes.  `asked` is what the task itself knows of this row: { target }, and for permutation lookup more.
  function asked(task, ids, row, targets, readout) {
    const at = readout.indexOf(row);
    if (task.kind === "permutation") return row % 2 ? null : questions(ids.slice(0, row + 1), task.tokens.length - 1)[row / 2];
    return at < 0 ? null : { target: targets && targets[at] >= 0 ? targets[at] : null };
  }

  function marksOf(question, value) {
    const holds = {
      target: value === question.target,
      used: (question.used ?? []).includes(value),
      recall: value === question.recall,
      elimination: value === question.elimination,
    };
    return Object.keys(MARKS).filter(kind => holds[kind]);
  }

  function classBar(task, question, value, now, before) {
    const ideal = question.ideal ? question.ideal[value - 1] : null, found = marksOf(question, value);
    const marks = found.map(kind =>
      element("span", { class: `mark mark-${kind}` }, element("span", { "aria-hidden": "true" }, `${MARKS[kind]} `), kind),
    );
    return element("tr", { class: ["bar", ...found.map(kind => `is-${kind}`)].join(" ") },
      element("th", { scope: "row" }, task.tokens[value] ?? String(value)),
      element("td", { class: "drawn" }, track(now, ideal), ...(ideal === null ? [] : [unseen(written(ideal))])),
      element("td", { class: "ours" }, written(now)),
      ...(before === null ? [] : [element("td", { class: "theirs" }, written(before))]),
      element("td", { class: "marks" }, ...marks),
    );
  }

  // Which classes have a bar: all of them, or the most probable ones and those that something is said of.
  function shownClasses(task, question, now, before) {
    const every = now.map((_, value) => value).slice(task.kind === "permutation" ? 1 : 0);
    if (every.length <= MOST_BARS + 2) return every;
    const best = values => [...every].sort((a, b) => values[b] - values[a]).slice(0, MOST_BARS);
    const kept = new Set([...best(now), ...best(before ?? now).slice(0, 2), question.target].filter(value => value !== null));
    return every.filter(value => kept.has(value));
  }

  function classes(task, question, predicted, clean) {
    const now = Array.from(softmax(predicted)), before = clean && Array.from(softmax(clean));
    const shown = shownClasses(task, question, now, before);
    const columns = ["answer", question.ideal ? unseen("ideal observer") : "", clean ? "edited" : "model", ...(clean ? ["as it is"] : []), unseen("marks")];
    const rows = shown.map(value => classBar(task, question, value, now[value], before && before[value]));
    const candidates = task.kind === "permutation" ? shown : now.map((_, value) => value);
    const best = candidates.reduce((a, b) => (now[b] > now[a] ? b : a));
    const name = value => task.tokens[value] ?? String(value);
    return {
      drawn: table(columns, rows),
      said: `${name(best)} (${written(now[best])})`,
      right: question.target === null ? null : best === question.target,
      target: question.target === null ? null : name(question.target),
      loss: question.target === null ? null : -Math.log(Math.max(now[question.target], 1e-300)),
      hidden: now.length - shown.length - (task.kind === "permutation" ? 1 : 0),
    };
  }

  // Vectors: each part of the prediction beside the symbols of the sequence.

  const distance = (a, b) => a.reduce((sum, value, at) => sum + (value - b[at]) ** 2, 0) / a.length;

  function nearest(part, symbols) {
    const errors = symbols.map(each => distance(part, each));
    return errors.reduce((best, error, at) => (error < errors[best] ? at : best), 0);
  }

  function partBar(name, found, before) {
    const right = found.target >= 0 && found.best === found.target;
    return element("tr", { class: right ? "bar is-target" : "bar" },
      element("th", { scope: "row" }, name),
      element("td", { class: "drawn" }, track(found.error ?? 0, before && before.error)),
      element("td", { class: "ours" }, found.error === null ? "–" : found.error.toFixed(3)),
      ...(before ? [element("td", { class: "theirs" }, before.error === null ? "–" : before.error.toFixed(3))] : []),
      element("td", { class: "marks" },
        `says ${letter(found.best)}${found.target < 0 ? "" : right ? " ✓" : `, not ${letter(found.target)}`}`),
    );
  }

  function vectors(task, targets, symbols, predicted, clean) {
    const size = task.symbol_size || predicted.length;
    const read = values => targets.map((target, at) => {
      const part = values.slice(at * size, (at + 1) * size);
      const wanted = target.symbol >= 0 ? symbols[target.symbol] : target.vector;
      return { target: target.symbol, best: nearest(part, symbols), error: wanted ? distance(part, wanted) : null };
    });
    const now = read(predicted), before = clean && read(clean);
    const name = at => (task.parts[at] ?? `${at + 1}.`).replace(/^step_(\d+)$/, (_, step) => `x${step.replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit])}`);
    const columns = ["asked", "", clean ? "error, edited" : "error", ...(clean ? ["as it is"] : []), "nearest symbol"];
    const known = now.filter(each => each.error !== null);
    return {
      drawn: table(columns, now.map((each, at) => partBar(name(at), each, before && before[at]))),
      said: now.map((each, at) => `${name(at)} = ${letter(each.best)}`).join(", "),
      right: known.length && known.every(each => each.target >= 0) ? known.every(each => each.best === each.target) : null,
      target: now.map((each, at) => `${name(at)} = ${each.target < 0 ? "?" : letter(each.target)}`).join(", "),
      loss: known.length ? known.reduce((sum, each) => sum + each.error, 0) / known.length : null,
      hidden: 0,
    };
  }

  return { asked, classes, vectors, written };
})();
