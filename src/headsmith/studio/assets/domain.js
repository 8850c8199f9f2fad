// Target and error over the domain: curves along one input, maps over two. Worked out a little in every frame.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number, bound } = headsmith;

  const POINTS = 241,
    SIDE = 61,
    BUDGET = { still: 7, moving: 2.5 }; // milliseconds of a frame

  function domain(view, model, state, { change, off }) {
    const known = view.target && headsmith.knows(view.target),
      plane = view.names.length > 1 && (view.tokens === 1 || view.blocks);
    const outputs = model.outputs,
      area = make("div"),
      controls = make("div", { class: "fields" });
    const axisSelect = (label, key) => {
      const select = make(
        "select",
        {
          id: `axis-${key}`,
          onchange: () => {
            state[key] = Number(select.value);
            refresh();
          },
        },
        view.names.map((name, i) => make("option", { value: i, text: name })),
      );
      return { select, field: make("div", {}, make("label", { for: `axis-${key}`, text: label }), select) };
    };
    const across = axisSelect("across", "axis"),
      up = axisSelect("up", "other");
    const which = make(
      "select",
      {
        id: "which",
        onchange: () => {
          state.output = Number(which.value);
          refresh();
        },
      },
      Array.from({ length: outputs }, (_, o) => make("option", { value: o, text: `y${o}` })),
    );
    const zoom = make("input", {
      type: "range",
      id: "zoom",
      min: 0,
      max: 8,
      step: 0.5,
      value: 0,
      oninput: () => {
        state.zoom = Number(zoom.value);
        refresh();
      },
    });
    const status = make("p", { class: "small quiet", role: "status" });
    if (view.names.length > 1) controls.append(across.field);
    if (plane && view.names.length > 2) controls.append(up.field);
    if (outputs > 1) controls.append(make("div", {}, make("label", { for: "which", text: "output" }), which));
    controls.append(
      make("div", { class: "grow" }, make("label", { for: "zoom", text: "magnify around the point" }), zoom),
    );

    // The window along an input: the domain, or a part of it around the point.
    const window = (input) => {
      const low = view.low[input],
        high = view.high[input],
        half = (high - low) / 2 / 10 ** state.zoom;
      const middle = Math.min(Math.max(state.rows[state.token][input], low + half), high - half);
      return [middle - half, middle + half];
    };
    let task = null,
      drawn = null,
      key = "";

    function signature() {
      const axes = plane ? [state.axis, state.other] : [state.axis];
      const others = state.rows.map((row, t) =>
        row.map((value, i) => (t === state.token && axes.includes(i) && state.zoom === 0 ? 0 : value)),
      );
      return JSON.stringify([others, axes, plane || state.token, state.output, state.zoom, [...off]]);
    }

    // Model and target at a point that differs from the current one in some inputs of the chosen token.
    function at({ rows, token, output }, values) {
      for (const [input, value] of values) rows[token][input] = value;
      const shown = view.blocks ? 0 : token,
        trace = headsmith.run(model, rows, { off });
      const target = known ? headsmith.evaluate(view.target, rows)[shown][output] : NaN;
      return [trace.output[shown][output], target];
    }

    function start() {
      const total = plane ? SIDE * SIDE : POINTS,
        models = new Float64Array(total),
        targets = new Float64Array(total);
      const [low, high] = window(state.axis),
        [bottom, top] = plane ? window(state.other) : [0, 0];
      const points = Array.from(
        { length: plane ? SIDE : POINTS },
        (_, i) => low + ((high - low) * i) / ((plane ? SIDE : POINTS) - 1),
      );
      const { axis, other, token, output } = state,
        rows = state.rows.map((row) => row.slice());
      task = { next: 0, total, models, targets, low, high, bottom, top, points, rows, axis, other, token, output };
    }

    function work(budget) {
      const until = performance.now() + budget;
      while (task.next < task.total && performance.now() < until) {
        const i = task.next++,
          values = [[task.axis, task.points[plane ? i % SIDE : i]]];
        if (plane)
          values.push([task.other, task.bottom + ((task.top - task.bottom) * Math.floor(i / SIDE)) / (SIDE - 1)]);
        [task.models[i], task.targets[i]] = at(task, values);
      }
      if (task.next < task.total) return;
      (plane ? drawMaps : drawCurves)(task);
      task = null;
    }

    function certified() {
      return view.certificate.outputs[state.output];
    }

    function drawCurves({ low, high, points, models, targets }) {
      const label = `${view.names[state.axis]}${view.tokens > 1 && !view.blocks ? ` of token t${state.token}` : ""}`;
      const errors = models.map((value, i) => value - targets[i]),
        most = certified(),
        pick = (value) => change(state.token, state.axis, value);
      const marker = state.rows[state.token][state.axis],
        where = { low, high, points, label, marker, onpick: pick };
      const above = headsmith.lineChart({
        ...where,
        name: "target and model over the domain",
        series: [
          ...(known ? [{ name: "target", colour: "--sky", wide: 6, values: targets }] : []),
          { name: "model", colour: "--blue", wide: 1.8, values: models },
        ],
      });
      const charts = [make("figure", { style: { margin: 0 } }, above.chart, save(above.chart, "target"))];
      const marks = [above.mark];
      if (known) {
        const below = headsmith.lineChart({
          ...where,
          name: "error over the domain, with the certified bound",
          levels: [{ at: most }, { at: -most }],
          series: [
            { name: `model − target; dashed: certified ±${bound(most)}`, colour: "--green", wide: 1.6, values: errors },
          ],
        });
        charts.push(make("figure", { style: { margin: 0 } }, below.chart, save(below.chart, "error")));
        marks.push(below.mark);
      }
      area.replaceChildren(make("div", { class: "charts" }, charts));
      drawn = () => marks.forEach((mark) => mark(state.rows[state.token][state.axis]));
      tell(known ? errors : null);
    }

    function save(chart, name) {
      return make("button", {
        type: "button",
        class: "small",
        text: `Save ${name} as SVG`,
        onclick: () => headsmith.download(`${name}.svg`, headsmith.svgText(chart), "image/svg+xml"),
      });
    }

    function drawMaps({ low, high, bottom, top, models, targets }) {
      const errors = models.map((value, i) => value - targets[i]),
        limit = certified(),
        values = known ? targets : models;
      let least = Infinity,
        most = -Infinity;
      for (const value of values) {
        least = Math.min(least, value);
        most = Math.max(most, value);
      }
      const dots = [],
        ends = (a, b, c) =>
          make(
            "div",
            { class: "ends" },
            [a, b, c].filter((text) => text !== undefined).map((text) => make("span", { text })),
          );
      const map = (title, shown, colours, from, to, labels) => {
        const canvas = make("canvas", {
            role: "img",
            "aria-label": `${title} over ${view.names[state.axis]} and ${view.names[state.other]}`,
          }),
          dot = make("i"),
          scale = make("canvas", { class: "scale", "aria-hidden": "true" });
        headsmith.paint(canvas, shown, SIDE, colours, from, to);
        headsmith.gradient(scale, colours);
        const holder = make("div", { class: "map" }, canvas, dot);
        const pick = (event) => {
          const box = canvas.getBoundingClientRect(),
            clip = (share) => Math.min(Math.max(share, 0), 1);
          change(state.token, state.axis, low + clip((event.clientX - box.left) / box.width) * (high - low));
          change(state.token, state.other, bottom + clip((box.bottom - event.clientY) / box.height) * (top - bottom));
        };
        holder.addEventListener("pointerdown", (event) => {
          holder.setPointerCapture(event.pointerId);
          pick(event);
        });
        holder.addEventListener("pointermove", (event) => {
          if (event.buttons) pick(event);
        });
        dots.push(dot);
        return make(
          "figure",
          { style: { margin: 0 } },
          make("figcaption", { class: "small", text: title }),
          holder,
          ends(
            `${view.names[state.axis]}: ${number(low, 7)}`,
            `up: ${view.names[state.other]} ${number(bottom, 7)} to ${number(top, 7)}`,
            number(high, 7),
          ),
          scale,
          ends(...labels),
          make("button", {
            type: "button",
            class: "small",
            text: "Save as PNG",
            onclick: () => large(canvas, (blob) => headsmith.download(`${title}.png`, blob)),
          }),
        );
      };
      const maps = [
        map(known ? "target" : "model", values, headsmith.CIVIDIS, least, most, [number(least, 4), number(most, 4)]),
      ];
      if (known)
        maps.push(
          map("error", errors, headsmith.BALANCE, -limit, limit, [
            `−${bound(limit)} (certified)`,
            "0",
            `${bound(limit)} (certified)`,
          ]),
        );
      area.replaceChildren(make("div", { class: "charts" }, maps));
      drawn = () =>
        dots.forEach((dot) => {
          const x = (state.rows[state.token][state.axis] - low) / (high - low),
            y = (state.rows[state.token][state.other] - bottom) / (top - bottom);
          dot.hidden = x < 0 || x > 1 || y < 0 || y > 1;
          dot.style.left = `${100 * x}%`;
          dot.style.top = `${100 * (1 - y)}%`;
        });
      tell(known ? errors : null);
    }

    // A map as a picture that is large enough for paper.
    function large(canvas, use) {
      const copy = make("canvas", { width: 8 * canvas.width, height: 8 * canvas.height }),
        context = copy.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.drawImage(canvas, 0, 0, copy.width, copy.height);
      copy.toBlob(use);
    }

    function tell(errors) {
      let worst = 0;
      if (errors) for (const value of errors) if (Number.isFinite(value)) worst = Math.max(worst, Math.abs(value));
      status.textContent = errors
        ? `Largest error of the ${errors.length} points drawn: ${number(worst, 3)}, ${number((100 * worst) / certified(), 3)} % of what is certified${off.size ? "; with a head switched off nothing is certified" : ""}.`
        : "The target is not known to this page: the model alone is drawn.";
      drawn();
    }

    function refresh() {
      key = "";
      task = null;
    }

    return {
      element: make("div", {}, controls, area, status),
      // Called in every frame; true while there is work to do. While inputs move, a picture that was begun is ended,
      // of the point that it was begun for: so it follows, some frames behind.
      update(moving = false) {
        if (!plane && state.axis >= view.names.length) state.axis = 0;
        if (plane && state.other === state.axis) state.other = (state.axis + 1) % view.names.length;
        across.select.value = state.axis;
        up.select.value = state.other;
        which.value = state.output;
        zoom.value = state.zoom;
        const now = signature();
        if (now !== key && !(moving && task)) {
          key = now;
          start();
        }
        if (task) work(moving ? BUDGET.moving : BUDGET.still);
        if (drawn) drawn();
        return Boolean(task) || now !== key;
      },
      refresh,
    };
  }

  Object.assign(headsmith, { domain });
})(globalThis);
