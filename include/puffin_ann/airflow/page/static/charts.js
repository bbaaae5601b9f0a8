// Draw figures over time, by uPlot, from the table that tells them; the table stays for all.
"use strict";
(() => {
  const table = document.querySelector("#over-time");
  const plots = [...document.querySelectorAll(".plot[data-column]")];
  if (!table || !plots.length || typeof uPlot === "undefined") return;

  const rows = [...table.tBodies[0].rows].reverse(); // the newest is the first there
  const columns = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.column);
  const cells = (name) => rows.map((row) => row.cells[columns.indexOf(name)]);
  const numbers = (name) =>
    cells(name).map(({ dataset: { value } }) => (value === "" ? null : Number(value)));
  const times = numbers("at").map((milliseconds) => milliseconds / 1000);
  // One point has a quarter of an hour on either side; of a single one uPlot itself tells no range.
  const [from, to] = [times[0], times[times.length - 1]];
  const span = from === to ? [from - 900, to + 900] : [from, to];

  const MINUTE = 60, HOUR = 3600, DAY = 86400;
  const STEPS = [1, 2, 5, 10, 15, 30].flatMap((step) => [step, step * MINUTE]).concat(
    [1, 2, 3, 6, 12].map((step) => step * HOUR), [1, 2, 5, 10, 20, 50, 100].map((step) => step * DAY)
  ).sort((a, b) => a - b);
  const fixed = (value, step) => value.toFixed(Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

  // How each is told at its axis, and the least that its axis spans: less is no difference.
  const KINDS = {
    recall: { least: () => 0.01, most: 1, tell: fixed },
    coverage: {
      least: () => 0.001, most: 1,
      tell: (value, step) => `${fixed(100 * value, 100 * step)}%`,
    },
    lag: {
      least: () => MINUTE, steps: STEPS,
      tell: (value, step) => {
        const [unit, name] =
          step >= DAY ? [DAY, "d"] : step >= HOUR ? [HOUR, "h"] : step >= MINUTE ? [MINUTE, "min"] : [1, "s"];
        return value === 0 ? "0" : `${fixed(value / unit, step / unit)} ${name}`;
      },
    },
    bytes: {
      least: (value) => value / 100,
      tell: (value, step, most) => {
        const unit = Math.max(0, Math.min(UNITS.length - 1, Math.floor(Math.log10(most || 1) / 3)));
        return `${fixed(value / 1000 ** unit, step / 1000 ** unit)} ${UNITS[unit]}`;
      },
    },
  };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const FONT = `11px ${getComputedStyle(document.body).fontFamily}`;
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
  const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const when = (seconds, step) => {
    const date = new Date(seconds * 1000);
    return (step >= DAY || (date.getHours() === 0 && date.getMinutes() === 0) ? day : clock).format(date);
  };

  const drawn = plots.map((place) => {
    const name = place.dataset.column;
    const kind = KINDS[name];
    const values = numbers(name);
    const known = values.filter((value) => value !== null);
    if (!known.length) return null;
    const most = Math.max(...known);
    const limit = place.dataset.limit === undefined ? null : Number(place.dataset.limit);
    const shown = limit === null ? known : [...known, limit];
    const [low, high] = [Math.min(...shown), Math.max(...shown)];
    const spread = Math.max(high - low, kind.least(high), 1e-9);
    const middle = (low + high) / 2;
    const axis = {
      stroke: () => colour("--quiet"),
      font: FONT,
      grid: { stroke: () => colour("--edge"), width: 1 },
      ticks: { show: false },
      gap: 4,
    };
    const told = document.createElement("p");
    told.className = "pointed";
    const chart = new uPlot(
      {
        width: place.clientWidth,
        height: place.clientHeight,
        padding: [8, 8, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: "over-time" } },
        scales: {
          x: { range: () => span },
          y: { range: () => [middle - 0.58 * spread, middle + 0.58 * spread] },
        },
        axes: [
          { ...axis, space: 56, size: 22, values: (_, marks, __, ___, step) => marks.map((at) => when(at, step)) },
          {
            ...axis,
            ...(kind.steps && { incrs: kind.steps }),
            space: 30,
            size: 54,
            values: (_, marks, __, ___, step) =>
              marks.map((value) =>
                value < -1e-9 || value > (kind.most ?? Infinity) + 1e-9 ? "" : kind.tell(value, step, most)
              ),
          },
        ],
        series: [
          {},
          { stroke: () => colour("--line"), width: 1.5, points: { show: known.length < 3, fill: () => colour("--line") } },
          ...(limit === null
            ? []
            : [{ stroke: () => colour("--quiet"), width: 1, dash: [4, 4], points: { show: false } }]),
        ],
        hooks: {
          setCursor: [
            ({ cursor: { idx } }) => {
              told.textContent =
                idx === null || idx === undefined
                  ? ""
                  : `${moment.format(times[idx] * 1000)}: ${cells(name)[idx].textContent}`;
            },
          ],
        },
      },
      [times, values, ...(limit === null ? [] : [times.map(() => limit)])],
      place
    );
    place.append(told);
    new ResizeObserver(() => {
      chart.setSize({ width: place.clientWidth, height: place.clientHeight });
    }).observe(place);
    return chart;
  });

  // Colours are those of the theme, which may change while the page is open.
  const again = () => drawn.forEach((chart) => chart?.redraw(false, true));
  new MutationObserver(again).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
