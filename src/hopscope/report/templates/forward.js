"use strict";
// The permutation lookup task and the forward pass of a one-layer transformer, in float64; no document is needed here.
globalThis.hopscopeForward = (() => {
  const NORM_EPSILON = 1e-5;

  // What is wrong with a sequence, in words for the reader.
  class Refusal extends Error {}

  // A packed array: base64 of little-endian float32.
  function unpack(packed) {
    const text = atob(packed.data);
    const bytes = Uint8Array.from(text, character => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return { shape: packed.shape, data: Float64Array.from({ length: bytes.length / 4 }, (_, at) => view.getFloat32(4 * at, true)) };
  }

  // A model of the story with its weights as numbers.
  function load(model) {
    const weights = {};
    for (const [name, packed] of Object.entries(model.weights)) weights[name] = unpack(packed);
    for (const [name, shape] of expectedShapes(model.config)) {
      const found = weights[name] ? weights[name].shape : null;
      if (String(found) !== String(shape)) throw new Error(`${name}: expected shape ${shape}, found ${found}`);
    }
    return { config: model.config, weights };
  }

  function expectedShapes(config) {
    const { values, width, mlp_size: hidden, norm } = config;
    const inner = config.heads * config.head_size;
    const codes = { learned: config.length, pair: Math.ceil(config.length / 2) }[config.positions];
    const shapes = [["embed.token.weight", [values + 1, width]]];
    const linear = (name, fanOut, fanIn) => shapes.push([`${name}.weight`, [fanOut, fanIn]], [`${name}.bias`, [fanOut]]);
    const scale = name => shapes.push([`${name}.weight`, [width]], [`${name}.bias`, [width]]);
    if (codes) shapes.push(["embed.position.weight", [codes, width]]);
    for (const part of ["query", "key", "value"]) linear(`layers.0.attention.${part}`, inner, width);
    linear("layers.0.attention.output", width, inner);
    if (norm !== "none") scale("layers.0.attention_norm");
    if (hidden) {
      linear("layers.0.mlp.inner", hidden, width);
      linear("layers.0.mlp.outer", width, hidden);
      if (norm !== "none") scale("layers.0.mlp_norm");
    }
    if (norm === "pre") scale("final_norm");
    linear("readout", values + 1, width);
    return shapes;
  }

  function linear(weights, name, row) {
    const { shape: [fanOut, fanIn], data } = weights[`${name}.weight`];
    const out = Float64Array.from(weights[`${name}.bias`].data);
    for (let o = 0; o < fanOut; o++) for (let i = 0; i < fanIn; i++) out[o] += data[o * fanIn + i] * row[i];
    return out;
  }

  function layerNorm(weights, name, row) {
    const scale = weights[`${name}.weight`].data, shift = weights[`${name}.bias`].data;
    const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
    return row.map((value, at) => ((value - mean) / Math.sqrt(variance + NORM_EPSILON)) * scale[at] + shift[at]);
  }

  function softmax(scores) {
    const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
    const raised = scores.map(score => Math.exp(score - largest));
    const total = raised.reduce((sum, value) => sum + value, 0);
    return raised.map(value => value / total);
  }

  // The error function by Abramowitz and Stegun 7.1.6, whose terms are all positive: no digits cancel.
  function erf(x) {
    const size = Math.abs(x);
    if (size > 6) return Math.sign(x);
    let term = size, sum = size;
    for (let n = 1; term > 1e-17 * sum; n++) {
      term *= (2 * size * size) / (2 * n + 1);
      sum += term;
    }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * Math.exp(-size * size) * sum;
  }

  const activations = {
    relu: x => Math.max(x, 0),
    gelu: x => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  };

  const add = (a, b) => a.map((value, at) => value + b[at]);

  function embedded({ config, weights }, tokens) {
    const { width } = config;
    const table = weights["embed.token.weight"].data;
    const code = { learned: at => at, pair: at => Math.floor(at / 2) }[config.positions];
    return tokens.map((token, at) => {
      const row = table.slice(token * width, (token + 1) * width);
      if (!code) return row;
      return add(row, weights["embed.position.weight"].data.subarray(code(at) * width, (code(at) + 1) * width));
    });
  }

  // Attention patterns [head][query][key], and the heads' outputs side by side for each position.
  function attention({ config, weights }, rows) {
    const size = config.head_size;
    const [queries, keys, values] = ["query", "key", "value"].map(part =>
      rows.map(row => linear(weights, `layers.0.attention.${part}`, row)),
    );
    const outputs = rows.map(() => new Float64Array(config.heads * size));
    const patterns = [];
    for (let head = 0; head < config.heads; head++) {
      const part = row => row.subarray(head * size, (head + 1) * size);
      const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
      const pattern = queries.map((query, at) => {
        const visible = keys.slice(0, at + 1);
        return softmax(visible.map(key => dot(part(query), part(key)) / Math.sqrt(size)));
      });
      pattern.forEach((row, at) => row.forEach((share, key) => {
        const value = part(values[key]), out = part(outputs[at]);
        for (let i = 0; i < size; i++) out[i] += share * value[i];
      }));
      patterns.push(pattern);
    }
    return { patterns, outputs };
  }

  function mlp({ config, weights }, row) {
    const inner = linear(weights, "layers.0.mlp.inner", row).map(activations[config.activation]);
    return linear(weights, "layers.0.mlp.outer", inner);
  }

  // Probabilities [position][token] and attention patterns [head][query][key] (keys up to the query) of a model.
  function run(model, tokens) {
    const { config, weights } = model;
    const norm = (place, name, row) => (config.norm === place ? layerNorm(weights, name, row) : row);
    const start = embedded(model, tokens);
    const { patterns, outputs } = attention(model, start.map(row => norm("pre", "layers.0.attention_norm", row)));
    const probabilities = start.map((row, at) => {
      let stream = add(row, linear(weights, "layers.0.attention.output", outputs[at]));
      stream = norm("post", "layers.0.attention_norm", stream);
      if (config.mlp_size) {
        stream = add(stream, mlp(model, norm("pre", "layers.0.mlp_norm", stream)));
        stream = norm("post", "layers.0.mlp_norm", stream);
      }
      return Array.from(softmax(linear(weights, "readout", norm("pre", "final_norm", stream))));
    });
    return { probabilities, patterns };
  }

  // What was typed, as tokens.  Up to V = 9 a digit is a token; a question mark may stand for the last y.
  function parse(text, values) {
    const typed = text.trim().replace(/\?$/, "").trim();
    const found = typed.match(values < 10 ? /[^\s,;:→>-]/g : /[^\s,;:→>-]+/g) || [];
    if (!found.length) throw new Refusal(`Type tokens x y x y …, each from 1 to ${values}.`);
    found.forEach((token, at) => {
      if (!/^\d+$/.test(token) || Number(token) < 1 || Number(token) > values) {
        throw new Refusal(`Expected tokens from 1 to ${values}, found “${token}” at place ${at + 1}.`);
      }
    });
    if (found.length > 2 * values) throw new Refusal(`Expected at most ${2 * values} tokens, found ${found.length}.`);
    return found.map(Number);
  }

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

  return { Refusal, load, run, parse, mapping, questions };
})();
