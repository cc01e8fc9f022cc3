// Small comforts on pages that work without them: a painted editor that completes, a live price, progress.
"use strict";

const editor = document.querySelector(".editor");
const area = editor && editor.querySelector("textarea");
const keywords = (
  "DP-SELECT SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT AS AND OR NOT IN BETWEEN LIKE IS NULL CASE WHEN THEN ELSE " +
  "END WITH JOIN ON USING DISTINCT FILTER DESC ASC DELTA WITHIN EXPLAIN DATE TRUE FALSE OFFSET"
).split(" ");
const functions = "COUNT SUM AVG MEDIAN MIN MAX STDDEV VARIANCE QUANTILE COUNT_IF MODE TOP EXTRACT CAST COALESCE ABS ROUND".split(" ");

// The pieces of a statement: comments, texts, quoted names, words (DP-SELECT is one), numbers, signs.
function split(text) {
  return text.match(/--[^\n]*|\/\*[^]*?(?:\*\/|$)|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|dp-select\b|[\p{L}_][\p{L}\p{N}_]*|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\s+|[^]/giu) || [];
}

function paint(words) {
  const layer = editor.querySelector(".paint");
  layer.replaceChildren(...split(area.value).map((piece) => {
    let kind = "";
    if (/^(--|\/\*)/.test(piece)) kind = "c";
    else if (piece[0] === "'") kind = "s";
    else if (keywords.includes(piece.toUpperCase())) kind = "k";
    else if (/^\d/.test(piece)) kind = "n";
    else if (words.tables.includes(piece.toLowerCase())) kind = "t";
    if (!kind) return piece;
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = piece;
    return span;
  }), "\n");
  layer.scrollTop = area.scrollTop;
}

function readWords() {
  const given = JSON.parse(editor.dataset.words || "{}");
  const columns = given.columns || [];
  return {
    tables: (given.tables || []).map((name) => name.toLowerCase()),
    all: [
      ...(given.tables || []).map((name) => [name, "table"]),
      ...columns,
      ...[...keywords, ...functions].map((name) => [name, ""]),
    ],
  };
}

// Completion: a list below the caret, moved through with the arrows, taken with Tab or Enter.
function offerWords(words, changed) {
  const list = document.getElementById("offers");
  let chosen = 0, begun = 0;
  const close = () => {
    list.hidden = true;
    area.removeAttribute("aria-activedescendant");
  };
  const choose = (place) => {
    const items = list.children;
    chosen = (place + items.length) % items.length;
    [...items].forEach((item, turn) => item.setAttribute("aria-selected", turn === chosen));
    area.setAttribute("aria-activedescendant", items[chosen].id);
    items[chosen].scrollIntoView({ block: "nearest" });
  };
  const take = () => {
    const word = list.children[chosen].dataset.word;
    area.setRangeText(word, begun, area.selectionStart, "end");
    close();
    changed();
  };
  const place = () => {
    const marker = document.createElement("span");
    const layer = document.createElement("pre");
    layer.className = "paint";
    layer.append(area.value.slice(0, begun), marker);
    editor.append(layer);
    const top = marker.offsetTop + 28 - area.scrollTop, left = marker.offsetLeft;
    layer.remove();
    list.style.top = `${top}px`;
    list.style.left = `${Math.max(0, Math.min(left, editor.clientWidth - 220))}px`;
  };
  const open = (asked) => {
    const before = area.value.slice(0, area.selectionStart);
    const word = before.match(/(?:dp-?\w*|[\p{L}_][\p{L}\p{N}_]*)?$/iu)[0];
    begun = before.length - word.length;
    if (!asked && word.length < 2) return close();
    const start = word.toLowerCase();
    const found = words.all.filter(([name]) => name.toLowerCase().startsWith(start) && name.toLowerCase() !== start);
    if (!found.length) return close();
    list.replaceChildren(...found.slice(0, 12).map(([name, about], turn) => {
      const item = document.createElement("li");
      item.id = `offer-${turn}`;
      const plain = !about || /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name);
      item.dataset.word = plain ? name : `"${name.replaceAll('"', '""')}"`;
      item.setAttribute("role", "option");
      item.append(name);
      if (about) item.append(Object.assign(document.createElement("small"), { textContent: about }));
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        chosen = turn;
        take();
      });
      return item;
    }));
    place();
    list.hidden = false;
    choose(0);
  };
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", "offers");
  area.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      open(true);
    } else if (list.hidden) {
      return;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Tab" || event.key === "Enter") {
      event.preventDefault();
      take();
    } else if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
  });
  area.addEventListener("blur", close);
  return open;
}

// The price of what is written, asked for when the writing pauses. Buying waits for the price.
function followPrice(form) {
  const box = document.getElementById("price");
  let timer = 0, last = area.value, running = null;
  const ask = async () => {
    running = new AbortController();
    const fields = new URLSearchParams({ csrf: form.elements.csrf.value, sql: area.value });
    try {
      const answer = await fetch(form.dataset.price, { method: "POST", body: fields, signal: running.signal });
      if (answer.ok) box.innerHTML = await answer.text();
      else throw new Error(answer.status);
    } catch (error) {
      if (error.name !== "AbortError") box.firstElementChild.classList.remove("stale");
    }
  };
  return () => {
    if (area.value === last) return;
    last = area.value;
    clearTimeout(timer);
    if (running) running.abort();
    box.firstElementChild.classList.add("stale");
    for (const button of box.querySelectorAll("[value=buy]")) button.disabled = true;
    timer = setTimeout(ask, 450);
  };
}

if (area) {
  const words = readWords(), form = area.form;
  const price = form.dataset.price ? followPrice(form) : () => {};
  const changed = () => {
    paint(words);
    price();
  };
  const open = offerWords(words, changed);
  editor.classList.add("painted");
  for (const each of document.querySelectorAll(".scripted")) each.hidden = false;
  area.addEventListener("input", () => {
    changed();
    open(false);
  });
  area.addEventListener("scroll", () => { editor.querySelector(".paint").scrollTop = area.scrollTop; });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const button = form.querySelector("button.primary:not(:disabled)");
      if (button) form.requestSubmit(button);
    }
  });
  paint(words);
  const answer = document.getElementById("answer");
  if (answer) answer.focus({ preventScroll: false });
}

// Questions that are chosen: every change brings the price and the statement again, in place.
const choose = document.getElementById("choose");
if (choose) {
  let running = null;
  const keep = (field) => field && field.name && choose.contains(field) && [field.name, field.value];
  choose.addEventListener("change", async () => {
    if (running) running.abort();
    running = new AbortController();
    const fields = new URLSearchParams(new FormData(choose));
    const offer = choose.querySelector(".price");
    offer.classList.add("stale");
    for (const button of choose.querySelectorAll("[value=buy]")) button.disabled = true;
    try {
      const sent = await fetch(choose.getAttribute("action"), { method: "POST", body: fields, signal: running.signal });
      const page = new DOMParser().parseFromString(await sent.text(), "text/html");
      const at = document.activeElement, held = keep(at);
      const open = [...choose.querySelectorAll("details[open][id]")].map((each) => each.id);
      const parts = [...document.querySelectorAll("[data-part]")].map((each) => [each, page.querySelector(`[data-part=${each.dataset.part}]`)]);
      if (parts.some(([, fresh]) => !fresh)) throw new Error(sent.status);
      for (const [part, fresh] of parts) part.replaceChildren(...fresh.childNodes);
      for (const each of choose.querySelectorAll("details[id]")) each.open ||= open.includes(each.id);
      const again = held && [...choose.elements].find((each) => each.name === held[0] && (!["radio", "checkbox"].includes(each.type) || each.value === held[1]));
      if (again && again !== document.activeElement) {
        if (again.type === "text") again.value = held[1];
        again.focus({ preventScroll: true });
      } else if (at && at.id && !document.contains(at)) document.getElementById(at.id)?.focus({ preventScroll: true });
    } catch (error) {
      if (error.name !== "AbortError") location.assign(`${choose.getAttribute("action")}?${new URLSearchParams([...fields].filter(([name]) => name !== "csrf"))}`);
    }
  });
  const bought = document.getElementById("answer");
  if (bought) bought.focus({ preventScroll: false });
}

const job = document.querySelector("#job[data-events]");
if (job) {
  const source = new EventSource(job.dataset.events);
  source.onmessage = (event) => {
    const record = JSON.parse(event.data);
    job.querySelector(".stages").replaceChildren(...(record.stages || []).map((stage) => {
      const item = document.createElement("li");
      item.textContent = stage;
      return item;
    }));
    if (["done", "failed", "refused"].includes(record.status)) location.reload();
  };
  source.addEventListener("end", () => {
    source.close();
    location.reload();
  });
}
