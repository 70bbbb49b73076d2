"use strict";
// The forward pass of every transformer that `hs.Model` describes, in float64; no document is needed here.
globalThis.hopscopeForward = (() => {
  const NORM_EPSILON = 1e-5;

  // A half-precision number from its 16 bits.
  function half(bits) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = (bits & 1023) / 1024;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
  }

  // A model: its configuration, and its weights by name, cut from base64 of little-endian float16 in the order of `layout`.
  function load({ config, layout }, text) {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
    const numbers = Float64Array.from({ length: bytes.length / 2 }, (_, at) => half(view.getUint16(2 * at, true)));
    const weights = {};
    let from = 0;
    for (const [name, shape] of layout) {
      const size = shape.reduce((a, b) => a * b, 1);
      weights[name] = { shape, data: numbers.subarray(from, (from += size)) };
    }
    if (from !== numbers.length) throw new Error(`weights: expected ${from} numbers, found ${numbers.length}`);
    return { config, weights };
  }

  function linear(weights, name, row) {
    const { shape: [fanIn, fanOut], data } = weights[`${name}.weight`];
    const out = Float64Array.from(weights[`${name}.bias`].data);
    for (let i = 0, at = 0; i < fanIn; i++) {
      const value = row[i];
      for (let o = 0; o < fanOut; o++) out[o] += value * data[at++];
    }
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

  const activations = { relu: x => Math.max(x, 0), gelu: x => 0.5 * x * (1 + erf(x / Math.SQRT2)) };
  const add = (a, b) => a.map((value, at) => value + b[at]);

  function embedded({ config, weights }, inputs) {
    const { width, codes } = config;
    const row = (name, at) => weights[name].data.slice(at * width, (at + 1) * width);
    const symbol = input => (config.inputs === "tokens" ? row("embed.token.weight", input) : linear(weights, "embed.vector", input));
    return inputs.map((input, at) => (codes.length ? add(symbol(input), row("embed.position.weight", codes[at])) : symbol(input)));
  }

  // What a row of a head puts on the keys under an edit, or null where it does as it learned.
  function edited(edits, head, row, visible) {
    const edit = edits.findLast(each => each.head === head && (each.rows === null || each.rows.includes(row)));
    return edit ? new Float64Array(visible).fill(edit.as === "uniform" ? 1 / visible : 0) : null;
  }

  // Attention patterns [head][query][key] (of a causal model, keys up to the query), and the heads' outputs by position.
  function attention({ config, weights }, layer, rows, edits) {
    const size = config.head_size;
    const [queries, keys, values] = ["query", "key", "value"].map(part => rows.map(row => linear(weights, `layers.${layer}.attention.${part}`, row)));
    const outputs = rows.map(() => new Float64Array(config.heads * size)), patterns = [];
    for (let head = 0; head < config.heads; head++) {
      const from = head * size;
      patterns.push(queries.map((query, at) => {
        const visible = config.causal ? at + 1 : rows.length;
        const pattern = edited(edits, head, at, visible) ?? softmax(Float64Array.from({ length: visible }, (_, key) => {
          let dot = 0;
          for (let i = from; i < from + size; i++) dot += query[i] * keys[key][i];
          return dot / Math.sqrt(size);
        }));
        pattern.forEach((share, key) => {
          for (let i = from; i < from + size; i++) outputs[at][i] += share * values[key][i];
        });
        return pattern;
      }));
    }
    return { patterns, outputs };
  }

  // Predictions [position][output] and attention patterns [layer][head][query][key] of a model.
  //
  // Inputs are token ids, or vectors.  Edits are { layer, head, rows, as }: these rows (null: all) of a head attend to
  // all keys that they may see alike ("uniform"), or to nothing ("zero").
  function run(model, inputs, edits = []) {
    const { config, weights } = model, patterns = [];
    const norm = (place, name, row) => (config.norm === place ? layerNorm(weights, name, row) : row);
    let stream = embedded(model, inputs);
    for (let layer = 0; layer < config.layers; layer++) {
      const name = `layers.${layer}`;
      const read = stream.map(row => norm("pre", `${name}.attention_norm`, row));
      const found = attention(model, layer, read, edits.filter(each => each.layer === layer));
      patterns.push(found.patterns);
      stream = stream.map((row, at) => {
        const middle = norm("post", `${name}.attention_norm`, add(row, linear(weights, `${name}.attention.output`, found.outputs[at])));
        if (!config.mlp_size) return middle;
        const inner = linear(weights, `${name}.mlp.inner`, norm("pre", `${name}.mlp_norm`, middle));
        return norm("post", `${name}.mlp_norm`, add(middle, linear(weights, `${name}.mlp.outer`, inner.map(activations[config.activation]))));
      });
    }
    return { predictions: stream.map(row => linear(weights, "readout", norm("pre", "final_norm", row))), patterns };
  }

  return { load, run, softmax };
})();
