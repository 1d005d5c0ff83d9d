// Shows /ui/events. Everything that comes from clusters becomes text, never markup.
"use strict";

const STALE_MS = 5000;
const byId = (id) => document.getElementById(id);
let last = Date.now();

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function pairs(list, rows) {
  for (const [name, value] of rows) {
    const box = make("div");
    box.append(make("dt", "", name), make("dd", "", value));
    list.append(box);
  }
  return list;
}

const number = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
const millis = (seconds) => (seconds === null ? "–" : `${Math.round(seconds * 1000)} ms`);

function line(values) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const top = Math.max(1, ...values);
  svg.setAttribute("viewBox", `0 0 ${values.length - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `requests a second over two minutes, at most ${number(Math.max(...values))}`);
  const shape = document.createElementNS(space, "polyline");
  shape.setAttribute("points", values.map((value, index) => `${index},${97 - (94 * value) / top}`).join(" "));
  svg.append(shape);
  return svg;
}

function stateOf(pool) {
  if (!pool.eligible) return ["bad", Object.values(pool.why_not)[0] || "it serves no model"];
  if (pool.doubtful) return ["warn", "not in the last list, which was not complete"];
  if (pool.breaker !== "closed") return ["warn", `circuit breaker ${pool.breaker}`];
  return ["good", "takes requests"];
}

function card(pool) {
  const box = make("article");
  const [level, text] = stateOf(pool);
  box.append(make("h4", "", pool.name), make("p", "", pool.namespace), make("p", `state ${level}`, text));
  const traffic = pool.traffic;
  box.append(pairs(make("dl", "numbers"), [
    ["requests/s", number(traffic.requests_per_s)],
    ["errors/s", number(traffic.errors_per_s)],
    ["first byte", millis(traffic.first_byte_p50_s)],
    ["p99", millis(traffic.first_byte_p99_s)],
    ["in flight", pool.limit ? `${pool.in_flight} of ${pool.limit}` : String(pool.in_flight)],
  ]));
  box.append(line(traffic.line));
  const list = make("ul");
  for (const [url, state] of Object.entries(pool.frontends)) {
    list.append(make("li", state === "closed" ? "" : "warn", state === "closed" ? url : `${url} (${state})`));
  }
  if (!list.children.length) list.append(make("li", "bad", "no frontend"));
  box.append(list);
  return box;
}

function show(state) {
  byId("totals").replaceChildren();
  const rate = state.pools.reduce((sum, pool) => sum + pool.traffic.requests_per_s, 0);
  pairs(byId("totals"), [
    ["pools that take requests", `${state.pools.filter((pool) => pool.eligible).length} of ${state.pools.length}`],
    ["requests/s", number(rate)],
    ["in flight", String(state.pools.reduce((sum, pool) => sum + pool.in_flight, 0))],
    ["policy", state.policy],
    ["list heard", state.discovery_age_s < 0 ? "never" : `${Math.round(state.discovery_age_s)} s ago`],
  ]);
  const notice = byId("notice");
  const problems = [];
  if (state.draining) problems.push("This router is going: it takes no new requests soon.");
  if (!state.complete) problems.push("The list of pools is not complete yet.");
  if (state.discovery_problem) problems.push(`The source of pools: ${state.discovery_problem}`);
  notice.hidden = problems.length === 0;
  notice.textContent = problems.join(" ");
  const clusters = new Map();
  for (const pool of state.pools) {
    if (!clusters.has(pool.cluster_id)) clusters.set(pool.cluster_id, []);
    clusters.get(pool.cluster_id).push(pool);
  }
  byId("clusters").replaceChildren(...[...clusters].map(([name, pools]) => {
    const box = make("div");
    const title = make("h3", "", `${name} `);
    const place = [pools[0].location.region, pools[0].location.availability_zone].filter(Boolean).join(", ");
    title.append(make("small", "", place));
    const cards = make("div", "cards");
    cards.append(...pools.map(card));
    box.append(title, cards);
    return box;
  }));
  if (!state.pools.length) byId("clusters").replaceChildren(make("p", "", "No pool is known."));
  models(state.pools);
}

function models(pools) {
  const found = new Map();
  for (const pool of pools) {
    for (const model of pool.models) {
      for (const name of [model.id, ...model.aliases]) {
        if (!found.has(name)) found.set(name, []);
        found.get(name).push(model.ready ? pool.cluster_id : `${pool.cluster_id} (not ready)`);
      }
    }
  }
  const table = make("table");
  const head = make("tr");
  head.append(make("th", "", "model"), make("th", "", "clusters"));
  table.append(head);
  for (const [name, where] of [...found].sort()) {
    const row = make("tr");
    row.append(make("td", "", name), make("td", "", where.join(", ")));
    table.append(row);
  }
  byId("models").replaceChildren(found.size ? table : make("p", "", "No model is served."));
}

function link(level, text) {
  const pill = byId("link");
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = `pill ${level}`;
  document.body.classList.toggle("stale", level === "bad");
}

const events = new EventSource("/ui/events");
events.onmessage = (event) => {
  last = Date.now();
  show(JSON.parse(event.data));
  link("good", "live");
};
setInterval(() => {
  if (Date.now() - last > STALE_MS) link("bad", "no word from the router: this is how it was");
}, 1000);
