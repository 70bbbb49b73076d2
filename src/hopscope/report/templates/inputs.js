"use strict";
// What a reader may put to a model: typed tokens, and sequences of vectors with other symbols.  Needs no document.
globalThis.hopscopeInputs = (() => {
  const { Refusal, unpack } = globalThis.hopscopeForward;

  // Typed words as token ids.  Where every token is one character, none has to stand between them.
  function parse(text, tokens, most) {
    const single = tokens.every(token => token.length === 1);
    const typed = text.trim().replace(/\?$/, "").trim();
    const found = single ? typed.match(/[^\s,;:→>-]/g) || [] : typed.split(/[\s,;:→>]+/).filter(Boolean);
    const some = tokens.length > 12 ? `${tokens.slice(0, 11).join(" ")} …` : tokens.join(" ");
    if (!found.length) throw new Refusal(`Type 1 to ${most} of the tokens ${some}.`);
    if (found.length > most) throw new Refusal(`Expected at most ${most} tokens, found ${found.length}.`);
    return found.map((word, at) => {
      const id = tokens.indexOf(word);
      if (id < 0) throw new Refusal(`Expected tokens among ${some}, found “${word}” at place ${at + 1}.`);
      return id;
    });
  }

  // Token ids as a reader types them, in pairs where the task shows pairs: 2→3 1→5 4.
  function write(ids, tokens, pairs) {
    const words = ids.map(id => tokens[id]);
    if (!pairs || words.some(word => word.length > 1)) return words.join(" ");
    const shown = words.flatMap((word, at) => (at % 2 ? [] : at + 1 < words.length ? `${word}→${words[at + 1]}` : word));
    return shown.join(" ");
  }

  // Rows of a packed array of vectors.
  function rows(text, count) {
    const numbers = unpack(text, "float32"), size = numbers.length / count;
    return Array.from({ length: count }, (_, at) => numbers.slice(at * size, (at + 1) * size));
  }

  const alike = (a, b) => a.every((value, at) => value === b[at]);

  // The different symbols of some vectors, and which of them each vector has: symbols have no name, so each gets a letter.
  function symbols(vectors, size) {
    const different = [];
    const of = vectors.map(vector => {
      const own = vector.slice(0, size), known = different.findIndex(each => alike(each, own));
      return known < 0 ? different.push(own) - 1 : known;
    });
    return { different, of };
  }

  // The symbol of each part of each target, -1 where it is none of them.
  function parts(targets, different, size) {
    return targets.map(target => Array.from({ length: target.length / size }, (_, part) => {
      const own = target.slice(part * size, (part + 1) * size);
      return different.findIndex(each => alike(each, own));
    }));
  }

  // Normal numbers from a seed (mulberry32 and Box-Muller).
  function normals(seed) {
    let state = seed >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  }

  // Other symbols of the same size in place of these; number 0 keeps them.
  function redrawn(different, number) {
    if (!number) return different;
    const squares = different.flatMap(each => Array.from(each, value => value * value));
    const scale = Math.sqrt(squares.reduce((a, b) => a + b, 0) / squares.length), draw = normals(number);
    return different.map(each => each.map(() => scale * draw()));
  }

  // The vectors with these symbols, and at some places (place → symbol) with others; position codes stay.
  function rebuilt(vectors, size, of, different, places = {}) {
    return vectors.map((vector, at) => {
      const made = Float64Array.from(vector);
      made.set(different[places[at] ?? of[at]]);
      return made;
    });
  }

  const letter = number => {
    const name = String.fromCharCode(65 + (number % 26));
    return number < 26 ? name : name + Math.floor(number / 26);
  };

  return { parse, write, rows, symbols, parts, redrawn, rebuilt, letter, normals };
})();
