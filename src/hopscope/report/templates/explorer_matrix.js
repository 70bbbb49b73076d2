"use strict";
// The attention matrix of one head on a canvas: rows read, columns are read; the chosen row is framed.
globalThis.hopscopeMatrix = (() => {
  const SMALLEST = 6, LARGEST = 40, LETTERS = 11;

  const colour = (node, name) => getComputedStyle(node).getPropertyValue(name).trim();

  class Matrix {
    // `chosen(row)` is called when a row is chosen, `pointed(row, key)` when a cell is pointed at.
    constructor(canvas, chosen, pointed) {
      Object.assign(this, { canvas, chosen, pointed, at: null });
      canvas.addEventListener("pointermove", event => this.point(this.cell(event)));
      canvas.addEventListener("pointerleave", () => this.point(null));
      canvas.addEventListener("click", event => { const cell = this.cell(event); if (cell) this.chosen(cell.row); });
      canvas.addEventListener("keydown", event => this.key(event));
      canvas.addEventListener("blur", () => this.point(null));
    }

    point(cell) {
      this.at = cell;
      this.pointed(cell);
      if (this.shown) this.paint();
    }

    cell(event) {
      const { left, top, size, count } = this.place, box = this.canvas.getBoundingClientRect();
      const key = Math.floor((event.clientX - box.left - left) / size), row = Math.floor((event.clientY - box.top - top) / size);
      return row >= 0 && key >= 0 && row < count && key < count ? { row, key } : null;
    }

    key(event) {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const from = this.at ?? { row: this.shown.row, key: this.shown.row };
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.chosen(from.row);
      } else if (moves[event.key]) {
        event.preventDefault();
        const bound = value => Math.min(this.place.count - 1, Math.max(0, value));
        this.point({ row: bound(from.row + moves[event.key][0]), key: bound(from.key + moves[event.key][1]) });
      }
    }

    // Shows { pattern, labels, roles, row, changed }: labels and roles by position; rows of `changed` are under an edit.
    draw(shown) {
      this.shown = shown;
      this.paint();
    }

    paint() {
      const { pattern, labels, roles, row, changed } = this.shown, { canvas } = this;
      const context = canvas.getContext("2d"), count = labels.length, room = canvas.parentElement.clientWidth;
      const mono = size => `${size}px ${colour(canvas, "--mono") || "monospace"}`;
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
      context.fillStyle = colour(canvas, "--wash");
      context.fillRect(left, top, size * count, size * count);
      pattern.forEach((shares, query) => shares.forEach((share, key) => {
        context.fillStyle = colour(canvas, "--raised");
        context.fillRect(left + key * size, top + query * size, size, size);
        context.globalAlpha = Math.sqrt(Math.min(1, Math.max(0, share)));
        context.fillStyle = colour(canvas, changed.includes(query) ? "--y" : "--x");
        context.fillRect(left + key * size, top + query * size, size, size);
        context.globalAlpha = 1;
      }));
      this.names({ context, mono, before, labels, turned, row });
      context.strokeStyle = colour(canvas, "--ink");
      context.lineWidth = 2;
      context.strokeRect(left, top + row * size, size * count, size);
      if (this.at) context.strokeRect(left + this.at.key * size, top + this.at.row * size, size, size);
    }

    names({ context, mono, before, labels, turned, row }) {
      const { left, top, size } = this.place, step = Math.ceil(LETTERS / size);
      context.font = mono(Math.min(12, Math.max(9, size - 1)));
      context.textBaseline = "middle";
      const marked = at => at === row || this.at?.row === at;
      before.forEach((word, at) => {
        const crowded = (at % step || [row, this.at?.row].some(other => Math.abs(at - other) < step)) && !marked(at);
        if (crowded) return;
        context.fillStyle = colour(this.canvas, marked(at) ? "--ink" : "--quiet");
        context.textAlign = "right";
        context.fillText(word, left - 5, top + (at + 0.5) * size, left - 6);
      });
      labels.forEach((word, at) => {
        if (at % step && this.at?.key !== at) return;
        context.fillStyle = colour(this.canvas, this.at?.key === at ? "--ink" : "--quiet");
        context.save();
        context.translate(left + (at + 0.5) * size, top - 5);
        if (turned) context.rotate(-Math.PI / 2);
        context.textAlign = turned ? "left" : "center";
        context.fillText(word, 0, turned ? 0 : -4);
        context.restore();
      });
    }
  }

  return Matrix;
})();
