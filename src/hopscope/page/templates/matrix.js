"use strict";
// The attention matrix of one head on a canvas: rows read, columns are read; the chosen row is framed.
globalThis.hopscopeMatrix = (() => {
  const SMALLEST = 6, LARGEST = 36, LETTERS = 11;

  // Bytes from base64; those that are deflated as well.
  const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  async function inflated(text) {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  class Matrix {
    // `chosen(row)` is called when a row is chosen, `pointed(cell)` when a cell is pointed at, or none any more.
    constructor(canvas, chosen, pointed) {
      Object.assign(this, { canvas, chosen, pointed, at: null });
      canvas.addEventListener("pointermove", event => this.point(this.cell(event)));
      canvas.addEventListener("pointerleave", () => this.point(null));
      canvas.addEventListener("click", event => { const cell = this.cell(event); if (cell) this.chosen(cell.row); });
      canvas.addEventListener("keydown", event => this.key(event));
      canvas.addEventListener("blur", () => this.point(null));
      window.matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
      let width = 0;
      new ResizeObserver(() => {
        if (canvas.parentElement.clientWidth !== width) { width = canvas.parentElement.clientWidth; this.paint(); }
      }).observe(canvas.parentElement);
    }

    point(cell) { this.at = cell; this.pointed(cell); this.paint(); }

    cell(event) {
      const { left, top, size, count } = this.place, box = this.canvas.getBoundingClientRect();
      const key = Math.floor((event.clientX - box.left - left) / size), row = Math.floor((event.clientY - box.top - top) / size);
      return row >= 0 && key >= 0 && row < count && key < count ? { row, key } : null;
    }

    key(event) {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const from = this.at ?? { row: this.shown.row ?? 0, key: this.shown.row ?? 0 };
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.chosen(from.row);
      } else if (moves[event.key]) {
        event.preventDefault();
        const bound = value => Math.min(this.place.count - 1, Math.max(0, value));
        this.point({ row: bound(from.row + moves[event.key][0]), key: bound(from.key + moves[event.key][1]) });
      }
    }

    // Shows { pattern, labels, roles, row, changed, rows, cells }: shares by query and key; by position what it holds and
    // is; the framed row; rows under an edit; the rows that matter (all, if none are named); outlined cells.
    draw(shown) { this.shown = shown; this.paint(); }

    paint() {
      const { canvas } = this, room = canvas.parentElement?.clientWidth;
      if (!this.shown || !room) return;
      const { pattern, labels, roles, row, changed = [], rows, cells = [] } = this.shown;
      const style = getComputedStyle(canvas), colour = name => style.getPropertyValue(name).trim();
      const context = canvas.getContext("2d"), count = labels.length;
      const mono = size => `${size}px ${colour("--mono") || "monospace"}`;
      context.font = mono(12);
      const longest = words => Math.max(...words.map(word => context.measureText(word).width));
      const before = roles.map((role, at) => `${role}: ${labels[at]}`);
      const left = Math.min(room * 0.4, longest(before) + 10);
      const size = Math.max(SMALLEST, Math.min(LARGEST, Math.floor((room - left - 4) / count)));
      const turned = longest(labels) > size - 2, top = turned ? longest(labels) + 10 : 20;
      this.place = { left, top, size, count };
      const scale = window.devicePixelRatio || 1, width = left + size * count + 2, height = top + size * count + 2;
      Object.assign(canvas, { width: width * scale, height: height * scale });
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      context.scale(scale, scale);
      context.fillStyle = colour("--wash");
      context.fillRect(left, top, size * count, size * count);
      pattern.forEach((shares, query) => shares.forEach((share, key) => {
        context.fillStyle = colour("--raised");
        context.fillRect(left + key * size, top + query * size, size, size);
        context.globalAlpha = Math.sqrt(Math.min(1, Math.max(0, share))) * (!rows || rows.includes(query) ? 1 : 0.25);
        context.fillStyle = colour(changed.includes(query) ? "--y" : "--x");
        context.fillRect(left + key * size, top + query * size, size, size);
        context.globalAlpha = 1;
      }));
      this.names(context, mono, colour, before, labels, turned, row, rows);
      context.lineWidth = 2;
      context.strokeStyle = colour("--y");
      for (const [query, key] of cells) context.strokeRect(left + key * size + 1, top + query * size + 1, size - 2, size - 2);
      context.strokeStyle = colour("--ink");
      if (row !== undefined) context.strokeRect(left, top + row * size, size * count, size);
      if (this.at) context.strokeRect(left + this.at.key * size, top + this.at.row * size, size, size);
    }

    names(context, mono, colour, before, labels, turned, row, rows) {
      const { left, top, size } = this.place, step = Math.ceil(LETTERS / size);
      context.font = mono(Math.min(12, Math.max(9, size - 1)));
      context.textBaseline = "middle";
      const marked = at => at === row || this.at?.row === at || Boolean(rows?.includes(at) && step < 2);
      before.forEach((word, at) => {
        if (!marked(at) && (at % step || [row, this.at?.row].some(other => Math.abs(at - other) < step))) return;
        context.fillStyle = colour(marked(at) ? "--ink" : "--quiet");
        context.textAlign = "right";
        context.fillText(word, left - 5, top + (at + 0.5) * size, left - 6);
      });
      labels.forEach((word, at) => {
        if (at % step && this.at?.key !== at) return;
        context.fillStyle = colour(this.at?.key === at ? "--ink" : "--quiet");
        context.save();
        context.translate(left + (at + 0.5) * size, top - 5);
        if (turned) context.rotate(-Math.PI / 2);
        context.textAlign = turned ? "left" : "center";
        context.fillText(word, 0, turned ? 0 : -4);
        context.restore();
      });
    }
  }

  return Object.assign(Matrix, { bytes, inflated });
})();
