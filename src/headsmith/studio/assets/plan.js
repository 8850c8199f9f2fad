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

  function picture(rows) {
    const width = 520,
      height = 300,
      left = 66,
      right = 14,
      top = 30,
      bottom = 40;
    const heads = rows.map((row) => Math.max(row.bill.heads, 1)),
      errors = rows.map((row) => Math.max(row.certified, 1e-300));
    const span = (values, lowest = -Infinity) => {
      const logs = values.map(Math.log10),
        low = Math.max(Math.floor(Math.min(...logs) - 0.1), lowest),
        high = Math.ceil(Math.max(...logs) + 0.1);
      return [low, high > low ? high : low + 1];
    };
    const [least, most] = span(heads, 0),
      [fine, coarse] = span(errors);
    const x = (value) => left + ((Math.log10(Math.max(value, 1)) - least) / (most - least)) * (width - left - right);
    const y = (value) =>
      top + ((coarse - Math.log10(Math.max(value, 1e-300))) / (coarse - fine)) * (height - top - bottom);
    const svg = make("svg", {
      viewBox: `0 0 ${width} ${height}`,
      class: "chart",
      role: "img",
      "aria-label": "heads against the certified error, for every recipe",
      xmlns: "http://www.w3.org/2000/svg",
    });
    const text = (content, given) =>
      make("text", { "font-size": 11, "font-family": "sans-serif", fill: css("--quiet"), text: content, ...given });
    for (let power = least; power <= most; power++) {
      const at = x(10 ** power);
      svg.append(make("line", { x1: at, x2: at, y1: top, y2: height - bottom, stroke: css("--line") }));
      svg.append(text(String(10 ** power), { x: at, y: height - bottom + 15, "text-anchor": "middle" }));
    }
    const step = Math.max(1, Math.ceil((coarse - fine) / 6));
    for (let power = fine; power <= coarse; power += step) {
      const at = y(10 ** power);
      svg.append(make("line", { x1: left, x2: width - right, y1: at, y2: at, stroke: css("--line") }));
      svg.append(text(`1e${power}`, { x: left - 6, y: at + 4, "text-anchor": "end" }));
    }
    svg.append(text("heads", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }));
    svg.append(text("certified error", { x: 4, y: 12 }));
    // The front: no row has as few heads at as small an error.
    const front = rows
      .filter(
        (row) =>
          !rows.some(
            (other) =>
              other !== row &&
              other.bill.heads <= row.bill.heads &&
              other.certified <= row.certified &&
              (other.bill.heads < row.bill.heads || other.certified < row.certified),
          ),
      )
      .sort((a, b) => a.bill.heads - b.bill.heads || b.certified - a.certified);
    const path = front.map((row) => `${x(row.bill.heads)},${y(row.certified)}`).join(" ");
    svg.append(make("polyline", { points: path, fill: "none", stroke: css("--quiet"), "stroke-dasharray": "4 4" }));
    rows.forEach((row) => svg.append(symbol(row.recipe, x(row.bill.heads), y(row.certified))));
    let place = 110;
    for (const recipe of new Set(rows.map((row) => row.recipe))) {
      svg.append(symbol(recipe, place, 12), text(recipe, { x: place + 10, y: 16 }));
      place += 30 + 7 * recipe.length;
    }
    return svg;
  }

  // `take(row)` compiles the row's recipe at its error.
  function plan(title, { rows, latex }, take, close) {
    const head = [
      "error asked",
      "recipe",
      "heads are",
      "certified",
      "layers",
      "heads",
      "reference tokens",
      "largest weight",
      "",
    ];
    const body = rows.map((row) =>
      make(
        "tr",
        { class: row.pareto ? "row-best" : null },
        make("td", { class: "number", text: number(row.error, 3) }),
        make("th", { scope: "row", text: row.recipe }),
        make("td", { text: row.variant }),
        make("td", { class: "number", text: bound(row.certified) }),
        ["layers", "heads", "reference_tokens"].map((name) =>
          make("td", { class: "number", text: String(row.bill[name]) }),
        ),
        make("td", { class: "number", text: number(row.bill.max_weight, 4) }),
        make(
          "td",
          {},
          make("button", {
            type: "button",
            class: "small",
            text: "Compile",
            "aria-label": `Compile with ${row.recipe} at ${number(row.error, 3)}`,
            onclick: () => take(row),
          }),
        ),
      ),
    );
    const svg = picture(rows);
    return headsmith.card(
      `Recipes side by side: ${title}`,
      "",
      make("p", {
        class: "small quiet",
        text: "Every row is certified. Bold: no other row of the same error is as good in every measure and better in one (Pareto).",
      }),
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          { id: "rows" },
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              head.map((text, i) =>
                make("th", { scope: "col", class: [0, 3, 4, 5, 6, 7].includes(i) ? "number" : null, text }),
              ),
            ),
          ),
          make("tbody", {}, body),
        ),
      ),
      make("figure", { style: { margin: "1rem 0 0", maxWidth: "40rem" } }, svg),
      make(
        "div",
        { class: "fields" },
        make("button", {
          type: "button",
          text: "Save as SVG",
          onclick: () => headsmith.download("plan.svg", headsmith.svgText(svg), "image/svg+xml"),
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
