"use strict";
// Lists the episodes of the report, and opens one at a click. All that it shows is put into the
// page as text nodes: nothing from a log is ever read as HTML, and nothing is loaded.
(() => {
  const PAGE = 50;
  const CLASSES = { task: "text", detail: "text", agent: "name", environment: "name" };
  const FILTERS = ["agent", "environment", "level", "result", "first fault"];
  const $ = (id) => document.getElementById(id);

  // Text with its invisible characters shown as escapes, as in the rest of the report. Where a claim
  // holds an object in place of a word it is JSON: an object may have no working toString.
  const visible = (value) => {
    const text = Object(value) === value ? JSON.stringify(value) : String(value);
    return text.replace(/[^\P{C}\n\t]|[\u2028\u2029]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  };

  function make(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children.map((child) => (child instanceof Node ? child : visible(child))));
    return node;
  }

  async function unpack(id) {
    const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const number = (value) =>
    Number.isFinite(value)
      ? value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 1 ? 6 : 2 })
      : "";

  // Of a session's 32 digits the first are enough to tell rows apart; the number after the dot stays.
  const shortId = (id) => id.replace(/^([0-9a-f]{8})[0-9a-f]{24}(\.\d+)$/, "$1…$2");

  // Text that a narrow column breaks behind its signs, before it breaks within a word.
  const breakable = (text) => visible(text).split(/(?<=[/:?&=_])/).flatMap((part) => [part, make("wbr", "")]);

  const tone = (result) =>
    result === "success" ? "good" : result === "failure" || result.startsWith("not valid") ? "bad" : "";

  // ---- One episode

  function facts(pairs) {
    const line = make("div", "facts");
    for (const [name, value] of pairs) {
      if (value !== "" && value !== null && value !== undefined) {
        line.append(make("span", "", make("span", "soft", `${name} `), value));
      }
    }
    return line;
  }

  function claimNode(claim) {
    const told = JSON.parse(claim.json);
    const used = told.usage || {};
    const sum = (...names) => names.map((name) => used[name]).filter(Number.isFinite).reduce((a, b) => a + b, 0);
    const read = sum("input", "cache_read", "cache_write_5m", "cache_write_1h");
    const line = facts([
      ["model", told.answered_by || told.model],
      ["tokens in", told.usage ? number(read) : ""],
      ["of them cached", used.cache_read ? number(used.cache_read) : ""],
      ["out", told.usage ? number(sum("output")) : ""],
      ["latency", Number.isFinite(told.latency_ms) ? `${number(told.latency_ms)} ms` : ""],
      ["waited", Number.isFinite(told.queue_ms) && told.queue_ms > 0 ? `${number(told.queue_ms)} ms` : ""],
      ["retries", Array.isArray(told.retries) && told.retries.length ? told.retries.length : ""],
      ["stop", told.stop],
      ["error", told.error ? `${visible(told.error.status)} ${visible(told.error.message)}` : ""],
    ]);
    const all = make("details", "", make("summary", "soft", "claimed by the client"));
    all.append(make("pre", "", claim.json));
    return make("div", "", line, all);
  }

  function changesNode(changes) {
    const list = make("ul", "changes");
    for (const [path, before, after] of changes) {
      const where = path ? `${path}: ` : "";
      const what = before === null ? `+ ${after}` : after === null ? `- ${before}` : `${before} → ${after}`;
      list.append(make("li", "", where, what));
    }
    return list;
  }

  function stepNode(step) {
    const node = make("div", step.fault ? "step fault" : "step");
    const title = make("div", "", make("strong", "", `Step ${step.number} `));
    title.append(make("span", "soft", `${(step.kind || "nothing").replace("_", " ")} `));
    if (step.fault) title.append(make("span", "mark bad", step.fault), " ");
    if (step.repaired) title.append(make("span", "mark", `repaired: ${step.repaired}`), " ");
    if (step.reward) title.append(make("span", "soft", `reward ${step.reward}`));
    const said = step.kind === "tool_call" ? `${step.tool || ""} ${step.arguments || ""}` : step.text || "(empty)";
    node.append(title, make("pre", "", said), make("pre", "soft", step.observation || ""));
    if (step.changes) node.append(make("div", "soft", "state"), changesNode(step.changes));
    return node;
  }

  function turnNodes(trace) {
    const nodes = [];
    const claims = [...trace.claims];
    let turn = null;
    let node = null;
    for (const step of trace.steps) {
      if (node === null || !step.turn || step.turn !== turn) {
        turn = step.turn;
        node = make("div", "turn", turn ? make("strong", "", `Turn ${turn}`) : "");
        for (let i = 0; turn && i < claims.length; ) {
          if (claims[i].turn === turn) node.append(claimNode(claims.splice(i, 1)[0]));
          else i += 1;
        }
        nodes.push(node);
      }
      node.append(stepNode(step));
    }
    if (claims.length) nodes.push(make("h3", "", "Other claims"), ...claims.map(claimNode));
    return nodes;
  }

  function verdictNode(verdict) {
    if (!verdict) return "not judged";
    const line = make("span", "");
    for (const [name, held] of Object.entries(verdict)) {
      line.append(make("span", held ? "mark good" : "mark bad", `${held ? "✓" : "✗"} ${name}`), " ");
    }
    return line;
  }

  function episodeNode(row, { score, trace }) {
    const node = make("div", "episode");
    node.append(facts([
      ["episode", row.episode],
      ["result", make("span", tone(row.result), row.result)],
      ["verdict", verdictNode(score.verdict)],
      ["end", row.end],
      ["first fault", row["first fault"]],
      ["replay", row.replay],
      ["reward", score.reward],
    ]));
    if (row.detail) node.append(make("p", "bad", row.detail));
    const own = Object.entries(score.metrics).filter(([name]) => !name.startsWith("langchain/"));
    node.append(facts(own.map(([name, value]) => [name, number(value)])));
    node.append(facts(Object.entries(score.labels)));
    if (!trace) {
      node.append(make("p", "soft", "The log was not at hand when this report was written: no steps are shown."));
      return node;
    }
    if (trace.instruction) node.append(make("h3", "", "Task"), make("pre", "", trace.instruction));
    node.append(make("h3", "", "Start"), make("pre", "soft", trace.observation));
    node.append(make("h3", "", "Steps"), ...turnNodes(trace));
    if (trace.faults.length) node.append(make("p", "bad", `The environment failed: ${trace.faults.join(", ")}`));
    if (trace.unseen) node.append(make("p", "soft", `State changes cannot be shown: ${trace.unseen}`));
    return node;
  }

  // ---- The list

  function show(index) {
    const names = index.columns.map((column) => column.name);
    const rows = index.rows.map((cells, place) => {
      const row = { place };
      names.forEach((name, i) => (row[name] = cells[i]));
      return row;
    });
    const used = index.columns.filter(({ name }) => rows.some((row) => row[name] !== null && row[name] !== ""));
    const state = { shown: rows, page: 0, sort: null, down: false };
    const blocks = new Map();
    const body = $("rows");

    async function open(button, line, row) {
      const next = line.nextElementSibling;
      if (next && next.className === "opened") {
        next.remove();
        button.setAttribute("aria-expanded", "false");
        return;
      }
      const cell = make("td", "");
      cell.colSpan = used.length;
      const opened = make("tr", "opened", cell);
      line.after(opened);
      button.setAttribute("aria-expanded", "true");
      const block = Math.floor(row.place / index.block);
      if (!blocks.has(block)) blocks.set(block, unpack(`block-${block}`));
      cell.append(episodeNode(row, (await blocks.get(block))[row.place % index.block]));
    }

    function lineNode(row) {
      const line = make("tr", "");
      for (const { name, kind } of used) {
        const value = row[name];
        const cell = make("td", kind === "number" ? "n" : CLASSES[name] || "short");
        if (name === "episode") {
          const button = make("button", "", shortId(value) || "(none)");
          button.title = visible(value);
          button.setAttribute("aria-expanded", "false");
          button.addEventListener("click", () => open(button, line, row));
          cell.append(button);
        } else if (name === "agent") {
          cell.append(...breakable(index.names[value] || value));
          cell.title = visible(value);
        } else if (name === "task") {
          cell.append(...breakable(value));
        } else if (name === "result") {
          cell.append(make("span", tone(value), value));
        } else {
          cell.append(visible(kind === "number" ? number(value) : value));
        }
        line.append(cell);
      }
      return line;
    }

    function draw() {
      const pages = Math.max(1, Math.ceil(state.shown.length / PAGE));
      state.page = Math.min(Math.max(0, state.page), pages - 1);
      const from = state.page * PAGE;
      body.replaceChildren(...state.shown.slice(from, from + PAGE).map(lineNode));
      $("count").textContent =
        `${number(state.shown.length)} of ${number(rows.length)} episodes, page ${state.page + 1} of ${pages}`;
      $("previous").disabled = state.page === 0;
      $("next").disabled = state.page === pages - 1;
    }

    function compare(one, other) {
      const a = one[state.sort];
      const b = other[state.sort];
      if (a === b) return one.place - other.place;
      if (a === null) return 1;
      if (b === null) return -1;
      return (a < b ? -1 : 1) * (state.down ? -1 : 1);
    }

    function refresh() {
      const wanted = $("find").value.toLowerCase();
      const chosen = FILTERS.map((name) => [name, $(`filter-${name}`).value]).filter(([, value]) => value !== "");
      state.shown = rows.filter(
        (row) =>
          chosen.every(([name, value]) => `=${row[name]}` === value) &&
          (!wanted || used.some(({ name, kind }) => kind === "text" && row[name].toLowerCase().includes(wanted)))
      );
      if (state.sort !== null) state.shown.sort(compare);
      state.page = 0;
      draw();
    }

    for (const name of FILTERS) {
      const select = make("select", "", new Option(`any ${name}`, ""));
      select.id = `filter-${name}`;
      select.setAttribute("aria-label", name);
      const values = [...new Set(rows.map((row) => row[name]))].sort();
      for (const value of values) {
        const shown = (name === "agent" && index.names[value]) || value;
        select.append(new Option(visible(shown) || "(none)", `=${value}`));
      }
      select.hidden = values.length < 2;
      select.addEventListener("change", refresh);
      $("filters").append(select);
    }
    for (const { name, kind } of used) {
      const button = make("button", "", name);
      const cell = make("th", kind === "number" ? "n" : "", button);
      button.addEventListener("click", () => {
        state.down = state.sort === name && !state.down;
        state.sort = name;
        for (const head of $("heads").children) head.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        refresh();
      });
      $("heads").append(cell);
    }
    $("find").addEventListener("input", refresh);
    $("previous").addEventListener("click", () => { state.page -= 1; draw(); });
    $("next").addEventListener("click", () => { state.page += 1; draw(); });
    $("episodes").hidden = false;
    refresh();
    performance.mark("episodes-listed");
  }

  unpack("listing").then(show, (error) => {
    $("trouble").textContent = `The list of episodes cannot be shown by this browser (${error.name}); scores.json holds it.`;
    $("trouble").hidden = false;
  });
})();
