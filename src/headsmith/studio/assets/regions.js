// The linear regions of a network of two inputs: polygons, level by level.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make } = headsmith;

  const SIDE = 460;

  // A colour for a number, so that neighbours differ: golden-angle hues, of even lightness.
  function colour(place) {
    return `hsl(${(place * 137.508) % 360}, 45%, ${58 + (place % 3) * 9}%)`;
  }

  function regions(data, state, change) {
    const [left, bottom] = data.low,
      [right, top] = data.high;
    const x = (value) => ((value - left) / (right - left)) * SIDE,
      y = (value) => ((top - value) / (top - bottom)) * SIDE;
    const drawing = make("svg", {
      viewBox: `0 0 ${SIDE} ${SIDE}`,
      class: "chart",
      role: "img",
      "aria-label": "linear regions",
      xmlns: "http://www.w3.org/2000/svg",
    });
    const polygons = data.cells.map((cell) => {
      const points = [];
      for (let i = 0; i < cell.length; i += 2) points.push(`${x(cell[i]).toFixed(2)},${y(cell[i + 1]).toFixed(2)}`);
      return make("polygon", { points: points.join(" "), "stroke-width": 0.8, "stroke-linejoin": "round" });
    });
    drawing.append(...polygons);
    drawing.addEventListener("click", (event) => {
      const box = drawing.getBoundingClientRect();
      change(0, 0, left + ((event.clientX - box.left) / box.width) * (right - left));
      change(0, 1, top - ((event.clientY - box.top) / box.height) * (top - bottom));
    });
    const levels = data.groups.length,
      counts = data.groups.map((group) => new Set(group).size),
      grown = levels > 1 ? counts.map((count, level) => `${count} after level ${level + 1}`).join(", ") : "",
      text = make("p", { role: "status" });
    const slider = make("input", {
      type: "range",
      id: "levels",
      min: 0,
      max: levels,
      step: 1,
      value: levels,
      oninput: () => draw(Number(slider.value)),
    });
    function draw(level) {
      const group = level ? data.groups[level - 1] : polygons.map(() => 0),
        count = level ? counts[level - 1] : 1;
      polygons.forEach((polygon, i) => {
        polygon.setAttribute("fill", colour(group[i]));
        polygon.setAttribute("stroke", level === levels ? "#ffffff" : colour(group[i]));
      });
      const whole =
        level === levels
          ? `; ${data.linear === null ? "" : `${data.linear} linear regions, `}${data.pieces} different affine pieces`
          : "";
      text.textContent = `${level} of ${levels} level${levels === 1 ? "" : "s"}: ${count} cell${count === 1 ? "" : "s"}${whole}.`;
    }
    draw(levels);
    const save = make("button", {
      type: "button",
      class: "small",
      text: "Save as SVG",
      onclick: () => headsmith.download("regions.svg", headsmith.svgText(drawing), "image/svg+xml"),
    });
    return make(
      "div",
      {},
      make("p", {
        class: "small quiet",
        text: `On each region the target is affine. Across: ${data.names[0]}, up: ${data.names[1]}. Click to take a point.`,
      }),
      grown ? make("p", { class: "small", text: `Cells, level by level: ${grown}.` }) : null,
      make(
        "div",
        { style: { maxWidth: "30rem" } },
        make("label", { for: "levels", text: "levels of the network that are drawn" }),
        slider,
        text,
        drawing,
      ),
      save,
    );
  }

  Object.assign(headsmith, { regions });
})(globalThis);
