// Small drawing tools: elements, numbers as people read them, colours, a line chart (SVG) and a map (canvas).
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const SVG = "http://www.w3.org/2000/svg";
  const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "text", "circle", "polygon", "polyline", "title"]);

  // An element with properties and children. Texts become text nodes: nothing is ever read as HTML.
  function make(tag, properties = {}, ...children) {
    const vector =
      SVG_TAGS.has(tag) && tag !== "title" ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) vector.addEventListener(name.slice(2), value);
      else if (name === "style") Object.assign(vector.style, value);
      else if (name === "text") vector.textContent = value;
      else vector.setAttribute(name, value === true ? "" : value);
    }
    vector.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return vector;
  }

  function number(value, digits = 6) {
    if (value === 0) return "0";
    if (!Number.isFinite(value)) return String(value);
    const size = Math.abs(value);
    if (size < 1e-3 || size >= 1e7) return value.toExponential(Math.max(0, digits - 1)).replace(/\.?0*e\+?/, "e");
    return String(Number(value.toPrecision(digits)));
  }

  // A bound for reading: rounded up, so that what is shown is proven too.
  function bound(value, digits = 3) {
    const near = number(value, digits),
      size = Math.abs(value);
    if (!(Number(near) < value)) return near;
    return number(Number(value.toPrecision(digits)) + 10 ** (Math.floor(Math.log10(size)) - digits + 1), digits);
  }

  // A table, named for those who cannot see it. `columns` are [text, class]; a row is a list of cells, texts or elements,
  // the first of which names it. Without `head` the names of columns are not shown.
  function table(caption, columns, rows = [], { id = null, kind = null, head = true, foot = null } = {}) {
    const row = (cells, look = null) =>
      make(
        "tr",
        { class: look },
        cells.map((cell, c) => {
          if (cell instanceof Element && cell.matches("td, th")) return cell;
          const look = { class: columns[c][1] || null };
          return c ? make("td", look, cell) : make("th", { scope: "row", ...look }, cell);
        }),
      );
    const body = make(
      "tbody",
      {},
      rows.map((cells) => (cells instanceof Element ? cells : row(cells))),
    );
    const names = columns.map(([text, look]) => make(text ? "th" : "td", { scope: text ? "col" : null, class: look, text }));
    const element = make(
      "div",
      { class: "scroll" },
      make(
        "table",
        { id, class: kind },
        make("caption", { class: "visually-hidden", text: caption }),
        head ? make("thead", {}, make("tr", {}, names)) : null,
        body,
        foot,
      ),
    );
    return { element, body, row };
  }

  // Blocks of text as Python cut them: paragraphs, some with a name, and displays whose lines stay as they are.
  function prose(blocks) {
    return blocks.map(({ text, name, display }) =>
      display
        ? make("pre", { class: "display", tabindex: 0, text })
        : make("p", { class: "small" }, name ? make("strong", { text: `${name}. ` }) : null, text),
    );
  }

  const CIVIDIS = [
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
  ];
  const BALANCE = ["#08519c", "#4292c6", "#9ecae1", "#f2f2f2", "#fdbb84", "#e6550d", "#8c2d04"];

  function parts(colour) {
    return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  }

  // A colour from a list, for a share from 0 to 1.
  function colourAt(list, share) {
    const place = Math.min(Math.max(share, 0), 1) * (list.length - 1),
      low = Math.min(Math.floor(place), list.length - 2);
    const a = parts(list[low]),
      b = parts(list[low + 1]);
    return a.map((value, i) => Math.round(value + (b[i] - value) * (place - low)));
  }

  function css(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // About `count` round numbers between two.
  function ticks(low, high, count = 5) {
    if (!(high > low)) return [low];
    const raw = (high - low) / count,
      power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= raw * 0.999),
      found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    return found;
  }

  // A chart of lines over one axis, which can be dragged: { low, high, points, series: [{ name, colour, wide, values,
  // dash }], levels: [{ at, name }], marker, label, name, onpick }.
  function lineChart(spec) {
    const width = 460,
      height = 250,
      left = 62,
      right = 12,
      top = 24,
      bottom = 34;
    const values = spec.series.flatMap((series) => Array.from(series.values)).filter(Number.isFinite);
    const marks = (spec.levels || []).map((level) => level.at);
    let low = Math.min(...values, ...marks),
      high = Math.max(...values, ...marks);
    if (!(high > low)) {
      low -= 1;
      high += 1;
    }
    const pad = 0.06 * (high - low);
    low -= pad;
    high += pad;
    const x = (value) => left + ((value - spec.low) / (spec.high - spec.low)) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    const chart = make("svg", {
      viewBox: `0 0 ${width} ${height}`,
      class: "chart",
      role: "img",
      "aria-label": spec.name,
      xmlns: SVG,
    });
    chart.append(
      make("rect", {
        class: "frame",
        x: left,
        y: top,
        width: width - left - right,
        height: height - top - bottom,
        fill: "none",
        stroke: css("--line"),
      }),
    );
    const text = (content, given) =>
      make("text", { "font-size": 11, "font-family": "sans-serif", fill: css("--quiet"), text: content, ...given });
    for (const tick of ticks(low, high, 4)) {
      chart.append(
        make("line", { class: "axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: css("--line") }),
      );
      chart.append(text(number(tick, 4), { x: left - 5, y: y(tick) + 4, "text-anchor": "end" }));
    }
    for (const tick of ticks(spec.low, spec.high, 5)) {
      chart.append(text(number(tick, 7), { x: x(tick), y: height - bottom + 15, "text-anchor": "middle" }));
    }
    chart.append(text(spec.label, { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }));
    for (const level of spec.levels || []) {
      if (level.shown === false) continue;
      chart.append(
        make("line", {
          x1: left,
          x2: width - right,
          y1: y(level.at),
          y2: y(level.at),
          stroke: css("--ink"),
          "stroke-dasharray": "5 4",
          "stroke-width": 1,
        }),
      );
    }
    let place = left;
    for (const series of spec.series) {
      const path = Array.from(series.values, (value, i) =>
        Number.isFinite(value) ? `${x(spec.points[i]).toFixed(2)},${y(value).toFixed(2)}` : null,
      ).filter(Boolean);
      chart.append(
        make("polyline", {
          points: path.join(" "),
          fill: "none",
          stroke: css(series.colour),
          "stroke-width": series.wide,
          "stroke-linejoin": "round",
        }),
      );
      chart.append(
        make("line", {
          x1: place,
          x2: place + 16,
          y1: 12,
          y2: 12,
          stroke: css(series.colour),
          "stroke-width": series.wide,
        }),
      );
      chart.append(text(series.name, { x: place + 20, y: 16 }));
      place += 34 + 6.2 * series.name.length;
    }
    const marker = make("line", { y1: top, y2: height - bottom, stroke: css("--orange"), "stroke-width": 2 });
    chart.append(marker);
    const mark = (value) => {
      const inside = value >= spec.low && value <= spec.high;
      marker.setAttribute("visibility", inside ? "visible" : "hidden");
      marker.setAttribute("x1", x(value));
      marker.setAttribute("x2", x(value));
    };
    mark(spec.marker);
    if (spec.onpick) {
      const pick = (event) => {
        const box = chart.getBoundingClientRect(),
          at = ((event.clientX - box.left) / box.width) * width;
        const share = Math.min(Math.max((at - left) / (width - left - right), 0), 1);
        spec.onpick(spec.low + share * (spec.high - spec.low));
      };
      chart.addEventListener("pointerdown", (event) => {
        chart.setPointerCapture(event.pointerId);
        pick(event);
      });
      chart.addEventListener("pointermove", (event) => {
        if (event.buttons) pick(event);
      });
    }
    return { chart, mark };
  }

  // Fills a canvas of side x side cells with colours for values; the first row is at the bottom.
  function paint(canvas, values, side, colours, low, high) {
    canvas.width = canvas.height = side;
    const context = canvas.getContext("2d"),
      image = context.createImageData(side, side);
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const value = values[row * side + column],
          place = 4 * ((side - 1 - row) * side + column);
        const share = high > low ? (value - low) / (high - low) : 0.5;
        const colour = Number.isFinite(value) ? colourAt(colours, share) : [128, 128, 128];
        image.data.set([...colour, 255], place);
      }
    }
    context.putImageData(image, 0, 0);
  }

  function gradient(canvas, colours) {
    canvas.width = 128;
    canvas.height = 1;
    const context = canvas.getContext("2d"),
      image = context.createImageData(128, 1);
    for (let i = 0; i < 128; i++) image.data.set([...colourAt(colours, i / 127), 255], 4 * i);
    context.putImageData(image, 0, 0);
  }

  function download(name, content, type) {
    const blob = content instanceof Blob ? content : new Blob([content], { type });
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // The drawing as a file of its own.
  function svgText(chart) {
    const copy = chart.cloneNode(true),
      [, , width, height] = copy.getAttribute("viewBox").split(" ");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.prepend(make("rect", { width: "100%", height: "100%", fill: css("--card") }));
    return new XMLSerializer().serializeToString(copy);
  }

  Object.assign(headsmith, {
    make,
    table,
    prose,
    number,
    bound,
    colourAt,
    css,
    ticks,
    lineChart,
    paint,
    gradient,
    download,
    svgText,
    CIVIDIS,
    BALANCE,
  });
})(globalThis);
