"use strict";
// An element of the page, for the scripts behind this one.
globalThis.hopscopeElement = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// A row of a table with a bar: [class, share] of marks on it, and the cells behind it.
globalThis.hopscopeBar = (name, share, marks, cells, kind = "") => {
  const element = globalThis.hopscopeElement, percent = value => `${(100 * Math.min(1, Math.max(0, value))).toFixed(2)}%`;
  const known = marks.filter(([, at]) => Number.isFinite(at)).map(([mark, at]) => element("span", { class: mark, style: `left: ${percent(at)}` }));
  const fill = element("span", { class: "fill", style: `width: ${percent(share)}` });
  return element("tr", { class: kind }, element("th", { scope: "row" }, name),
    element("td", { class: "drawn" }, element("span", { class: "track", "aria-hidden": "true" }, fill, ...known)), ...cells.map(each => element("td", {}, each)));
};

// A button that plays a slider to its end; returns what stops it.
globalThis.hopscopePlay = (button, words, slider, pace) => {
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; button.textContent = `▶ ${words}`; };
  const go = to => { slider.value = String(to); slider.dispatchEvent(new Event("input")); };
  const on = () => { go(Number(slider.value) + 1); if (slider.value === slider.max) stop(); };
  slider.addEventListener("input", event => { if (event.isTrusted) stop(); });
  button.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (slider.value === slider.max) go(0);
    timer = setInterval(on, pace);
    button.textContent = "❚❚ Pause";
  });
  stop();
  return stop;
};

// Work that can wait.  What the first screen shows is done at once, and `data-page` says when it is ready.  The rest is
// done when it comes near the screen, or else when the browser has nothing to do; `data-charts` says when nothing is left.
(() => {
  const jobs = new Map();
  let last = Promise.resolve();

  globalThis.hopscopeLater = (node, job) => jobs.set(node, job);

  const folded = node => Boolean(node.closest("details:not([open])"));
  const idle = () => new Promise(go => (window.requestIdleCallback || setTimeout)(go, { timeout: 400 }));

  const onScreen = node => !folded(node) && node.getBoundingClientRect().top < window.innerHeight && node.getBoundingClientRect().bottom > 0;

  // One job after another: two at once would only make the first one later.
  function work(node) {
    const job = jobs.get(node);
    jobs.delete(node);
    near.unobserve(node);
    if (job) last = last.then(job).catch(error => {
      const place = node.querySelector(".complaint");
      if (place) place.textContent = `This part of the page could not be started: ${error.message}`;
      console.error(error);
    });
    return last;
  }

  const near = new IntersectionObserver(
    seen => { for (const each of seen) if (each.isIntersecting) work(each.target); }, { rootMargin: "100% 0px" });

  document.addEventListener("DOMContentLoaded", async () => {
    const { dataset } = document.documentElement;
    for (const node of [...jobs.keys()].filter(onScreen)) await work(node);
    dataset.page = "ready";
    performance.mark("page ready");
    for (const node of jobs.keys()) near.observe(node);
    while (jobs.size) {
      await idle();
      const left = [...jobs.keys()];
      if (left.length) await work(left.find(node => !folded(node)) || left[0]);
    }
    await last;
    dataset.charts = "ready";
    performance.mark("charts ready");
  });
})();

// Files of a drawing: a folded row of buttons behind it.  `make(kind)` gives the address of `svg`, `png` or `csv`.
globalThis.hopscopeOffer = (drawing, name, make) => {
  const element = globalThis.hopscopeElement;
  const buttons = ["svg", "png", "csv"].map(kind => {
    const button = element("button", { type: "button" }, kind.toUpperCase());
    button.addEventListener("click", async () => {
      const address = await make(kind);
      element("a", { href: address, download: `${name}.${kind}` }).click();
      if (address.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(address), 60000);
    });
    return button;
  });
  drawing.after(element("details", { class: "save" },
    element("summary", { "aria-label": `Save the drawing ${name}` }, "Save"), element("div", {}, ...buttons)));
};

globalThis.hopscopeCsv = text => URL.createObjectURL(new Blob([text], { type: "text/csv" }));

// The keyboard's ways through the page, what is folded, and paper.
(() => {
  // Numbers of a section, or of a part of it, are one stop of the Tab key: arrows go from one to the next.
  const GROUPS = ".masthead, section, .part";
  function joinNumbers(group) {
    const numbers = [...group.querySelectorAll(".number")].filter(each => each.closest(GROUPS) === group);
    if (!numbers.length) return;
    numbers[0].tabIndex = 0;
    group.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = numbers[numbers.indexOf(document.activeElement) + (step || 0)];
      if (!step || !next || !numbers.includes(document.activeElement)) return;
      event.preventDefault();
      next.focus();
    });
    group.addEventListener("focusin", event => {
      if (!numbers.includes(event.target)) return;
      for (const each of numbers) each.tabIndex = each === event.target ? 0 : -1;
    });
  }

  // Only what can be scrolled is a stop of the Tab key.
  function markScrollers() {
    for (const each of document.querySelectorAll(".scroll, main pre")) {
      if (each.scrollWidth > each.clientWidth + 1) each.tabIndex = 0;
      else each.removeAttribute("tabindex");
    }
  }

  // A link into something folded opens it.
  function openTarget() {
    let name = location.hash.slice(1).split("?")[0];
    try { name = decodeURIComponent(name); } catch { /* a name with a bare % in it */ }
    const target = document.getElementById(name);
    if (!target) return;
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    target.scrollIntoView();
  }

  // Paper cannot unfold anything: print with everything open, and fold it again behind it.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open], .save)")];
    for (const each of opened) each.open = true;
  });
  window.addEventListener("afterprint", () => { for (const each of opened.splice(0)) each.open = false; });

  for (const group of document.querySelectorAll(GROUPS)) joinNumbers(group);
  markScrollers();
  window.addEventListener("resize", markScrollers);
  document.addEventListener("toggle", markScrollers, true);
  window.addEventListener("hashchange", openTarget);
  if (location.hash) openTarget();
  // On a narrow screen the contents would push the story below the first screen.
  if (window.matchMedia("(max-width: 72rem)").matches) document.querySelector(".contents details").open = false;
})();
