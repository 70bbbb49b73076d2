"use strict";
// The permutation lookup task as hopscope.theory.sequences reads it: what a sequence asks, and what answers it.
globalThis.hopscopePermutation = (() => {
  const { Refusal } = globalThis.hopscopeForward;

  // The pairs of a sequence as x → y; refuses what no permutation allows.
  function pairs(tokens) {
    const shown = new Map();
    for (let at = 0; at + 1 < tokens.length; at += 2) {
      const [x, y] = [tokens[at], tokens[at + 1]];
      if (shown.has(x) && shown.get(x) !== y) {
        throw new Refusal(`Expected one y for each x, found ${x}→${shown.get(x)} and then ${x}→${y}.`);
      }
      for (const [other, value] of shown) {
        if (value === y && other !== x) {
          throw new Refusal(`Expected another y for every x, found ${other}→${y} and then ${x}→${y}.`);
        }
      }
      shown.set(x, y);
    }
    return shown;
  }

  // The values of 1 … V, or null where the pairs leave several mappings.
  function mapping(tokens, values) {
    const shown = pairs(tokens);
    if (shown.size < values - 1) return null;
    const every = Array.from({ length: values }, (_, at) => at + 1);
    const unused = every.find(value => ![...shown.values()].includes(value));
    return every.map(x => shown.get(x) ?? unused);
  }

  // The questions of a sequence, as hopscope.theory.sequences reads them.
  function questions(tokens, values) {
    const whole = mapping(tokens, values);
    const found = [];
    for (let at = 0; at < tokens.length; at += 2) {
      const x = tokens[at], shown = pairs(tokens.slice(0, at));
      const used = [...shown.values()];
      const free = Array.from({ length: values }, (_, n) => n + 1).filter(value => !used.includes(value));
      const recall = shown.get(x) ?? null;
      found.push({
        x,
        seen: tokens.slice(0, at + 1),
        used,
        target: tokens[at + 1] ?? recall ?? (whole ? whole[x - 1] : null),
        recall,
        elimination: free.length === 1 ? free[0] : null,
        ideal: Array.from({ length: values }, (_, n) => {
          if (recall !== null) return n + 1 === recall ? 1 : 0;
          return free.includes(n + 1) ? 1 / free.length : 0;
        }),
      });
    }
    return found;
  }

  return { mapping, questions };
})();
