// Searches `pages`, which are put before this when the site is built, and shows what it finds in the theme's window.
// A section is found if every word of the query begins a word of it; words of the title weigh most.
(function () {
  const most = 40, before = 60, after = 140;
  const fold = (text) => text.toLowerCase();

  function starts(text, word) {
    // Where the words of `text` begin that begin with `word`.
    const found = [];
    for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
      if (at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1])) found.push(at);
    }
    return found;
  }

  function search(query) {
    const words = fold(query).match(/[\p{L}\p{N}_.-]+/gu) || [];
    const found = [];
    for (const page of words.length ? pages : []) {
      const title = fold(page.title), text = fold(page.text);
      let weight = 0, place = -1;
      for (const word of words) {
        const named = starts(title, word).length, there = starts(text, word);
        if (!named && !there.length) { weight = 0; break; }
        weight += 20 * named + Math.min(there.length, 10);
        if (place < 0 && there.length) place = there[0];
      }
      if (weight) found.push({ page, weight, place });
    }
    return found.sort((one, other) => other.weight - one.weight).slice(0, most);
  }

  function show(query) {
    const results = document.getElementById("mkdocs-search-results");
    if (!results) return;
    results.replaceChildren();
    const found = search(query);
    for (const { page, place } of found) {
      const entry = document.createElement("article"), link = document.createElement("a");
      const excerpt = document.createElement("p");
      link.href = base_url.replace(/\/$/, "") + "/" + page.location;
      link.textContent = page.title;
      const start = Math.max(0, place - before);
      excerpt.textContent = (start ? "… " : "") + page.text.slice(start, Math.max(place, 0) + after);
      entry.append(document.createElement("h3"), excerpt);
      entry.firstChild.append(link);
      results.append(entry);
    }
    if (!found.length && query.trim()) results.textContent = "No page has all of these words.";
  }

  function begin() {
    const field = document.getElementById("mkdocs-search-query");
    if (!field) return;
    field.addEventListener("input", () => show(field.value));
    if (field.form) field.form.addEventListener("submit", (event) => event.preventDefault());
    // A search may be part of an address: index.html?q=epsilon.
    const asked = new URLSearchParams(location.search).get("q");
    if (!asked) return;
    field.value = asked;
    show(asked);
    const opener = document.querySelector('[data-bs-target="#mkdocs_search_modal"]');
    if (opener) window.addEventListener("load", () => opener.click());
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
