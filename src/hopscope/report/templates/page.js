"use strict";
// An element of the page, for the scripts behind this one.
globalThis.hopscopeElement = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// The keyboard's ways through the page, what is folded, and paper.
(() => {
  // Numbers of a section are one stop of the Tab key: arrows go from one to the next.
  function joinNumbers(group) {
    const numbers = [...group.querySelectorAll(".number")];
    if (!numbers.length) return;
    numbers[0].tabIndex = 0;
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = numbers[numbers.indexOf(document.activeElement) + (step || 0)];
      if (!step || !next || !numbers.includes(document.activeElement)) return;
      event.preventDefault();
      next.focus();
    });
    group.addEventListener("focusin", (event) => {
      if (!numbers.includes(event.target)) return;
      for (const each of numbers) each.tabIndex = each === event.target ? 0 : -1;
    });
  }

  // Only what can be scrolled is a stop of the Tab key.
  function markScrollers() {
    for (const each of document.querySelectorAll(".scroll")) {
      if (each.scrollWidth > each.clientWidth + 1) each.tabIndex = 0;
      else each.removeAttribute("tabindex");
    }
  }

  // A link into something folded opens it.
  function openTarget() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
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
  window.addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
    opened = [];
  });

  for (const group of document.querySelectorAll(".masthead, section, .part")) {
    if (!group.parentElement.closest("section") || group.matches(".part")) joinNumbers(group);
  }
  markScrollers();
  window.addEventListener("resize", markScrollers);
  document.addEventListener("toggle", markScrollers, true);
  window.addEventListener("hashchange", openTarget);
  if (location.hash) openTarget();
  // On a narrow screen the contents would push the story below the first screen.
  if (window.matchMedia("(max-width: 72rem)").matches) document.querySelector(".contents details").open = false;
  // A page without charts is ready here; charts.js says it of the others.
  if (!document.querySelector(".chart[data-spec]")) {
    Object.assign(document.documentElement.dataset, { page: "ready", charts: "ready" });
  }
})();
