// Recipes side by side: a table, and which rows nothing beats, as a picture of heads against the certified error.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number, bound, css } = headsmith;

  // A colour and a shape for each recipe: either of them tells recipes apart.
  const LOOKS = {
    native: ["--blue", "circle"],
    relu: ["--orange", "square"],
    ramp: ["--green", "triangle"],
    maxout: ["--pink", "diamond"],
    auto: ["--ink", "circle"],
  };

  function symbol(recipe, x, y) {
    const [colour, shape] = LOOKS[recipe] || LOOKS.auto,
      paint = { fill: css(colour), stroke: css("--card"), "stroke-width": 1 };
    if (shape === "circle") return make("circle", { cx: x, cy: y, r: 6, ...paint });
    const corners = {
      square: [-5, -5, 5, -5, 5, 5, -5, 5],
      triangle: [-6, 5, 6, 5, 0, -7],
      diamond: [0, -7, 7, 0, 0, 7, -7, 0],
    }[shape];
    const points = corners.map((value, i) => value + (i % 2 ? y : x));
    return make("polygon", { points: points.join(" "), ...paint });
  }

  // What may stand across in the picture: how it is told, and where it is in a row.
  const MEASURES = [
    ["heads", "heads"],
    ["layers", "layers"],
    ["reference tokens", "reference_tokens"],
    ["largest weight", "max_weight"],
  ];

  // Round numbers on a logarithmic axis: 1, 2, 5, 10, ... where few decades are shown, else powers of ten.
  function logTicks(low, high) {
    const found = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); power++)
      for (const digit of high - low < 2.5 ? [1, 2, 5] : [1]) found.push(digit * 10 ** power);
    return found.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
  }

  function picture(rows, [told, measure]) {
    const width = 520,
      height = 300,
      left = 66,
      right = 14,
      top = 30,
      bottom = 40;
    const costOf = (row) => Math.log10(Math.max(row.bill[measure], 1)),
      errorOf = (row) => Math.log10(Math.max(row.certified, 1e-300));
    const span = (values) => {
      const low = Math.min(...values),
        high = Math.max(...values),
        room = 0.12 * (high - low) || 0.5;
      return [low - room, high + room];
    };
    const [least, most] = span(rows.map(costOf)),
      [fine, coarse] = span(rows.map(errorOf));
    const across = (cost) => left + ((cost - least) / (most - least)) * (width - left - right),
      up = (error) => top + ((coarse - error) / (coarse - fine)) * (height - top - bottom),
      place = (row) => [across(costOf(row)), up(errorOf(row))];
    const svg = make("svg", {
      viewBox: `0 0 ${width} ${height}`,
      class: "chart",
      role: "img",
      "aria-label": `${told} against the certified error, for every recipe`,
      xmlns: "http://www.w3.org/2000/svg",
    });
    const text = (content, given) =>
      make("text", { "font-size": 11, "font-family": "sans-serif", fill: css("--quiet"), text: content, ...given });
    for (const tick of logTicks(least, most)) {
      const x = across(Math.log10(tick));
      svg.append(make("line", { x1: x, x2: x, y1: top, y2: height - bottom, stroke: css("--line") }));
      svg.append(text(number(tick, 3), { x, y: height - bottom + 15, "text-anchor": "middle" }));
    }
    for (const tick of logTicks(fine, coarse)) {
      const y = up(Math.log10(tick));
      svg.append(make("line", { x1: left, x2: width - right, y1: y, y2: y, stroke: css("--line") }));
      svg.append(text(number(tick, 3), { x: left - 6, y: y + 4, "text-anchor": "end" }));
    }
    svg.append(text(told, { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }));
    svg.append(text("certified error", { x: 4, y: 12 }));
    // The front: no row costs as little at as small an error.
    const beats = (a, b) =>
      costOf(a) <= costOf(b) && a.certified <= b.certified && (costOf(a) < costOf(b) || a.certified < b.certified);
    const front = rows
      .filter((row) => !rows.some((other) => beats(other, row)))
      .sort((a, b) => costOf(a) - costOf(b) || b.certified - a.certified);
    const path = front.map((row) => place(row).join(",")).join(" ");
    svg.append(make("polyline", { points: path, fill: "none", stroke: css("--quiet"), "stroke-dasharray": "4 4" }));
    for (const row of rows) {
      const [x, y] = place(row);
      if (row.pareto) svg.append(make("circle", { cx: x, cy: y, r: 11, fill: "none", stroke: css("--ink"), "stroke-width": 1.5 }));
      svg.append(symbol(row.recipe, x, y));
    }
    let at = 110;
    for (const recipe of new Set(rows.map((row) => row.recipe))) {
      svg.append(symbol(recipe, at, 12), text(recipe, { x: at + 10, y: 16 }));
      at += 30 + 7 * recipe.length;
    }
    return svg;
  }

  // `take(row)` compiles the row's recipe at its error.
  function plan(title, { rows, latex }, take, close) {
    const costs = ["layers", "heads", "reference tokens", "largest weight"],
      columns = [
        ["recipe"],
        ["heads are", "hide-narrow"],
        ...["error asked", "certified", ...costs].map((name) => [name, "number"]),
        [""],
      ];
    const { element, body, row: line } = headsmith.table("every recipe and error, with its bill", columns, [], { id: "rows" });
    for (const row of rows) {
      const again = make("button", {
        type: "button",
        class: "small",
        text: "Compile",
        "aria-label": `Compile with ${row.recipe} at ${number(row.error, 3)}`,
        onclick: () => take(row),
      });
      const { layers, heads, reference_tokens, max_weight } = row.bill,
        figures = [number(row.error, 3), bound(row.certified), layers, heads, reference_tokens, number(max_weight, 4)];
      body.append(line([row.recipe, row.variant, ...figures.map(String), again], row.pareto ? "row-best" : null));
    }
    const holder = make("figure", { style: { margin: "0", maxWidth: "40rem" } }, picture(rows, MEASURES[0])),
      which = make(
        "select",
        { id: "measure", onchange: () => holder.replaceChildren(picture(rows, MEASURES[Number(which.value)])) },
        MEASURES.map(([told], i) => make("option", { value: i, text: told })),
      );
    return headsmith.card(
      `Recipes side by side: ${title}`,
      "",
      make("p", {
        class: "small quiet",
        text: "Every row is certified. Bold, and ringed in the picture: no other row of the same error is as good in every measure and better in one (the Pareto front).",
      }),
      element,
      make("div", { class: "fields" }, make("div", {}, make("label", { for: "measure", text: "across" }), which)),
      holder,
      make(
        "div",
        { class: "fields" },
        make("button", {
          type: "button",
          text: "Save as SVG",
          onclick: () => headsmith.download("plan.svg", headsmith.svgText(holder.firstElementChild), "image/svg+xml"),
        }),
        make("button", {
          type: "button",
          text: "LaTeX table",
          onclick: () => headsmith.download("plan.tex", latex, "text/x-tex"),
        }),
        make("button", { type: "button", text: "Close", onclick: close }),
      ),
    );
  }

  Object.assign(headsmith, { plan });
})(globalThis);
