// Filter and sort the table; ask for runs through Airflow's API; search by a row's key; follow runs.
"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);

  // Airflow shows this page in a frame that may not lead the window elsewhere: its router may.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-airflow]");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey) return;
    try {
      if (window.parent === window) return;
      window.parent.history.pushState({}, "", link.href);
      window.parent.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
      event.preventDefault();
    } catch {
      // A page around this one that is not Airflow's own: the link does what links do.
    }
  });

  const table = one("#indexes");
  if (table) {
    const body = table.tBodies[0];
    const input = one("#filter");
    let state = "";
    const apply = () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const row of body.rows) {
        const fits =
          (!state || row.dataset.state === state) && row.dataset.text.includes(wanted);
        row.hidden = !fits;
        shown += fits;
      }
      one("#no-match").hidden = shown > 0;
      for (const tile of all(".tile")) {
        tile.setAttribute("aria-pressed", String(tile.dataset.state === state));
      }
    };
    input.addEventListener("input", apply);
    for (const tile of all(".tile")) {
      tile.addEventListener("click", () => {
        state = tile.dataset.state === state ? "" : tile.dataset.state;
        apply();
      });
    }
    const value = (row, column) => {
      const cell = row.cells[column];
      const told = cell.dataset.value;
      if (told === undefined) return cell.firstElementChild.textContent.toLowerCase();
      return told === "" ? null : Number(told);
    };
    all("th button[data-sort]", table).forEach((button, column) => {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of all("th", table.tHead)) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((left, right) => {
          const [a, b] = [value(left, column), value(right, column)];
          if (a === null || b === null) return (a === null) - (b === null);
          const order = a < b ? -1 : a > b ? 1 : 0;
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  }

  const dialog = one("#confirm");
  if (dialog) {
    const told = one("#told");
    let act = null;
    for (const button of all("button[data-dag]")) {
      button.addEventListener("click", () => {
        act = button;
        one("#confirm-title").textContent = `${button.textContent.trim()} ${button.dataset.index}?`;
        one("#confirm-words").textContent = button.dataset.words;
        one("#force-line").hidden = !("force" in button.dataset);
        one("#force").checked = false;
        dialog.showModal();
      });
    }
    one("#cancel").addEventListener("click", () => dialog.close());
    one("#go").addEventListener("click", async () => {
      dialog.close();
      const dag = encodeURIComponent(act.dataset.dag);
      const conf = "force" in act.dataset && one("#force").checked ? { force: true } : {};
      told.className = "told";
      told.textContent = "asking Airflow for the run …";
      try {
        const answer = await fetch(`../api/v2/dags/${dag}/dagRuns`, {
          method: "POST",
          credentials: "same-origin",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ logical_date: null, conf }),
        });
        const said = await answer.json().catch(() => ({}));
        if (!answer.ok) {
          const why = typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail ?? said);
          throw new Error(`Airflow refused it (${answer.status}): ${why}`);
        }
        const link = document.createElement("a");
        link.href = `../dags/${dag}/runs/${encodeURIComponent(said.dag_run_id)}`;
        link.dataset.airflow = "";
        link.textContent = said.dag_run_id;
        told.replaceChildren("asked for run ", link);
        document.dispatchEvent(new Event("puffin-ann-asked"));
      } catch (error) {
        told.className = "told failed";
        told.textContent = error.message;
      }
      told.focus();
    });
  }

  const query = one("#query");
  if (query) {
    query.addEventListener("submit", async (event) => {
      event.preventDefault();
      const result = one("#neighbours");
      result.textContent = "searching …";
      try {
        const asked = new URLSearchParams(new FormData(query));
        const answer = await fetch(`query?${asked}`, { credentials: "same-origin" });
        const said = await answer.json();
        if (!answer.ok) throw new Error(said.detail ?? `not answered (${answer.status})`);
        const rows = document.createElement("table");
        const head = rows.createTHead().insertRow();
        for (const name of ["rank", said.key, "distance"]) {
          const cell = document.createElement("th");
          cell.scope = "col";
          cell.textContent = name;
          head.append(cell);
        }
        const filled = rows.createTBody();
        for (const near of said.neighbours) {
          const row = filled.insertRow();
          for (const told of [near.rank, near.key, Number(near.distance.toPrecision(6))]) {
            row.insertCell().textContent = told;
          }
        }
        const words = document.createElement("p");
        words.textContent = said.explanation;
        result.replaceChildren(rows, words);
        if (!said.neighbours.length) rows.replaceWith("no row satisfies the condition");
      } catch (error) {
        result.textContent = error.message;
      }
    });
  }

  // While a run is open, what it changes is shown anew; at its end all is, unless one is typing.
  const FOLLOW_MS = 5000;
  const isTyping = () =>
    dialog?.open || all("#query input[type=text]").some((input) => input.value || input === document.activeElement);
  const follow = async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
    if (!answer?.ok) return;
    const now = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of all("[data-live]")) {
      const newer = one(`[data-live="${part.dataset.live}"]`, now);
      if (newer && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(newer));
    }
    if ("atWork" in one("main", now).dataset || isTyping()) return;
    clearInterval(following);
    location.reload();
  };
  let following = null;
  const keepFollowing = () => {
    if (dialog && following === null) following = setInterval(follow, FOLLOW_MS);
  };
  if ("atWork" in one("main").dataset) keepFollowing();
  document.addEventListener("puffin-ann-asked", keepFollowing);
})();
