/** Searches the documentation in the browser. The index is loaded when the field receives focus. */

(() => {
  const RESULTS_MAX = 12;
  const SNIPPET_CHARS = 160;
  const form = /** @type {HTMLFormElement | null} */ (document.querySelector("form.search"));
  const field = form && form.querySelector("input");
  const list = document.getElementById("results");
  if (!form || !field || !list) return;

  /** @typedef {{page: string, heading: string, url: string, text: string}} Section */
  /** @type {Promise<Section[]> | null} */
  let index = null;

  function loadIndex() {
    if (!index) {
      index = fetch("/docs/search.json")
        .then((response) => (response.ok ? response.json() : Promise.reject(new Error(`${response.status}`))))
        .then((body) => body.sections);
      index.catch(() => (index = null));
    }
    return index;
  }

  /** @param {string} text @param {string} term */
  const count = (text, term) => text.toLowerCase().split(term).length - 1;

  /** Scores a section; 0 if a term is missing. @param {Section} section @param {string[]} terms */
  function rateSection(section, terms) {
    let total = 0;
    for (const term of terms) {
      const score =
        10 * Math.min(count(section.heading, term), 1) +
        3 * Math.min(count(section.page, term), 1) +
        Math.min(count(section.text, term), 4);
      if (score === 0) return 0;
      total += score;
    }
    return total;
  }

  /** @param {string} text @param {string} term */
  function makeSnippet(text, term) {
    const position = Math.max(text.toLowerCase().indexOf(term), 0);
    const start = Math.max(position - SNIPPET_CHARS / 4, 0);
    const end = start + SNIPPET_CHARS;
    return (start > 0 ? "…" : "") + text.slice(start, end) + (end < text.length ? "…" : "");
  }

  /** @param {Section} section @param {string} term */
  function makeItem(section, term) {
    const link = document.createElement("a");
    link.href = section.url;
    const title = document.createElement("strong");
    title.textContent = section.heading || section.page;
    const page = document.createElement("small");
    page.textContent = section.page;
    const text = document.createElement("span");
    text.textContent = makeSnippet(section.text, term);
    link.append(title, page, text);
    return link;
  }

  async function search() {
    const query = field.value.trim().toLowerCase();
    list.hidden = query.length < 2;
    if (list.hidden) return;
    const terms = query.split(/\s+/);
    try {
      const sections = await loadIndex();
      if (query !== field.value.trim().toLowerCase()) return;
      const matches = sections
        .map((section) => ({ section, score: rateSection(section, terms) }))
        .filter(({ score }) => score > 0)
        .sort((a, b) => b.score - a.score)
        .slice(0, RESULTS_MAX);
      list.textContent = matches.length ? "" : "No results.";
      list.append(...matches.map(({ section }) => makeItem(section, terms[0] || "")));
    } catch {
      list.textContent = "Search is unavailable. Reload the page and try again.";
    }
  }

  form.hidden = false;
  field.addEventListener("focus", () => loadIndex().catch(() => undefined), { once: true });
  field.addEventListener("input", search);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const firstLink = list.querySelector("a");
    if (firstLink) firstLink.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") list.hidden = true;
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!form.contains(/** @type {Node} */ (event.target))) list.hidden = true;
  });
})();
