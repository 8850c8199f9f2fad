// One model on a page: its promise, its bill, inputs to drag, its heads, its error over the domain.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number, bound } = headsmith;

  const MOST_OUTPUTS = 6;

  function card(title, kind, ...children) {
    return make("section", { class: kind || null, "aria-label": title }, make("h2", { text: title }), children);
  }

  function promise(view) {
    const { certificate } = view,
      names = Object.keys(certificate.parts),
      all = certificate.error;
    const rows = names.map((name, i) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", text: name }),
        make("td", { class: "number", text: bound(certificate.parts[name], 4) }),
        make(
          "td",
          { style: { width: "28%" } },
          make("span", {
            class: `bar part${i}`,
            style: { width: `${all ? (100 * certificate.parts[name]) / all : 0}%` },
          }),
        ),
        make("td", { class: "quiet hide-narrow", text: certificate.meaning[name] }),
      ),
    );
    const tokens = certificate.tokens > 1 && !view.blocks ? `, in sequences of up to ${certificate.tokens} tokens` : "";
    return card(
      "The promise",
      "first",
      make("p", { class: "title", text: view.title }),
      make("p", { class: "quiet", text: `for ${view.where}` }),
      make(
        "p",
        { class: "promise-line" },
        "|model − target| ≤ ",
        make("strong", { text: certificate.shown }),
        ` for every input in the domain${tokens}, run in ${certificate.dtype}`,
      ),
      make("p", {
        class: "small quiet",
        text: view.verified
          ? "Proven: the proof was checked again, from the weights, when this view was made."
          : "Proven by the compiler that made this model.",
      }),
      view.assumed
        ? make("p", { class: "small quiet", text: `Assumed of the target, which was sampled: ${view.assumed}` })
        : null,
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          {},
          make("caption", { class: "visually-hidden", text: "the parts of the certified error" }),
          make("tbody", {}, rows),
        ),
      ),
    );
  }

  function bill(view) {
    const rows = view.bill.map(([name, value, meaning]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", text: name }),
        make("td", { class: "number", text: value }),
        make("td", { class: "quiet hide-narrow", text: meaning }),
      ),
    );
    return card(
      "The bill",
      "",
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          {},
          make("caption", { class: "visually-hidden", text: "what the model costs" }),
          make("tbody", {}, rows),
        ),
      ),
    );
  }

  // The middle of the domain, or a quarter of the way where that tells more; of a sequence, a wave.
  function firstRows(view) {
    const count =
      view.tokens > 1 && !view.blocks ? view.lengths.filter((length) => length <= 64).pop() || view.lengths[0] : 1;
    return Array.from({ length: count }, (_, t) =>
      view.names.map((_, i) => {
        if (view.kind === "learner" && i === view.learner.features)
          return Number((0.6 * Math.sin(2.4 * t + 0.4) * view.high[i] + 0.1 * Math.sin(9 * t)).toPrecision(3));
        const share = count > 1 ? 0.5 + 0.35 * Math.sin(2.4 * t + 1.7 * i + 0.4) : i % 2 ? 0.2 : 0.7;
        return Number((view.low[i] + share * (view.high[i] - view.low[i])).toPrecision(4));
      }),
    );
  }

  function readState(view, given = {}) {
    const state = {
      rows: firstRows(view),
      token: 0,
      head: view.layers.length ? "0.0" : null,
      column: 0,
      axis: 0,
      other: 1,
      output: 0,
      zoom: 0,
    };
    const rows = given.rows;
    const fits =
      Array.isArray(rows) &&
      (view.tokens > 1 && !view.blocks ? view.lengths.includes(rows.length) : rows.length === 1) &&
      rows.every((row) => Array.isArray(row) && row.length === view.names.length && row.every(Number.isFinite));
    if (fits) state.rows = rows.map((row) => row.slice());
    const whole = (value, below) => Number.isInteger(value) && value >= 0 && value < below;
    if (whole(given.token, state.rows.length)) state.token = given.token;
    if (whole(given.axis, view.names.length)) state.axis = given.axis;
    if (whole(given.output, view.certificate.outputs.length)) state.output = given.output;
    const there = (name) => typeof name === "string" && view.layers[name.split(".")[0]]?.[name.split(".")[1]];
    if (there(given.head)) state.head = given.head;
    state.off = new Set((Array.isArray(given.off) ? given.off : []).filter(there));
    return state;
  }

  // What the model returns now, beside the target and the certificate.
  function results(view, model, known) {
    const list = make("dl", { class: "results" }),
      sequences = view.tokens > 1 && !view.blocks,
      charts = make("div");
    const warning = make("p", { class: "warn", id: "outside", hidden: true, role: "alert" });
    const spoken = make("p", { class: "visually-hidden", role: "status" });
    let count = -1,
      cells = [],
      speaking = 0,
      shownRows = [];
    const shown = Math.min(view.certificate.outputs.length, MOST_OUTPUTS);
    for (let o = 0; o < shown; o++) {
      const parts = {
        model: make("dd", { class: "big figure" }),
        target: make("dd", { class: "figure" }),
        gap: make("dd"),
        fill: make("i"),
        text: make("span", { class: "small" }),
      };
      parts.gap.append(make("div", { class: "meter", "aria-hidden": "true" }, parts.fill), parts.text);
      const name = view.certificate.outputs.length > 1 ? `y${o} ` : "";
      list.append(make("dt", { text: `${name}model` }), parts.model);
      if (known)
        list.append(make("dt", { text: "target" }), parts.target, make("dt", { text: "difference" }), parts.gap);
      cells.push(parts);
    }
    function buildBars(length) {
      count = length;
      shownRows = Array.from({ length: shown }, () =>
        Array.from({ length }, () => ({ fill: make("i"), line: make("b") })),
      );
      charts.replaceChildren(
        ...shownRows.flatMap((row, o) => [
          make("p", {
            class: "small quiet",
            text: `${shown > 1 ? `y${o}` : "output"} of each token; the line is the target`,
          }),
          make(
            "div",
            { class: "bars result", "aria-hidden": "true" },
            row.map(({ fill, line }) => make("div", {}, fill, line)),
          ),
        ]),
      );
    }
    function drawBars(outputs, targets) {
      if (outputs.length !== count) buildBars(outputs.length);
      shownRows.forEach((row, o) => {
        const column = [
          ...outputs.map((each) => each[o]),
          ...(targets ? targets.map((each) => each[o]) : []),
          0,
        ].filter(Number.isFinite);
        const least = Math.min(...column),
          most = Math.max(...column),
          wide = most - least || 1,
          place = (value) => (100 * (value - least)) / wide;
        row.forEach(({ fill, line }, t) => {
          const at = place(outputs[t][o]),
            zero = place(0);
          fill.style.bottom = `${Math.min(at, zero)}%`;
          fill.style.height = `${Math.max(Math.abs(at - zero), 0.8)}%`;
          line.hidden = !targets;
          if (targets) line.style.bottom = `calc(${place(targets[t][o])}% - 1px)`;
        });
      });
    }
    return {
      element: make(
        "div",
        {},
        warning,
        sequences ? charts : null,
        sequences ? make("p", { class: "small quiet", id: "of-token" }) : null,
        list,
        spoken,
      ),
      update(state, trace, targets) {
        const outputs = headsmith.outputs(model, trace),
          away = headsmith.outside(view, state.rows),
          token = view.blocks ? 0 : state.token;
        warning.hidden = !away.length && !state.off.size;
        const first = away[0];
        const said = first
          ? `${first.name}${sequences ? ` of token t${first.token}` : ""} = ${number(first.value, 5)} lies outside its domain [${number(first.low)}, ${number(first.high)}]: nothing is promised of this output.`
          : state.off.size
            ? `${state.off.size} head${state.off.size > 1 ? "s are" : " is"} switched off: this is another model, and nothing is promised of it.`
            : "";
        if (warning.textContent !== said) warning.textContent = said;
        cells.forEach((parts, o) => {
          const value = outputs[token][o],
            most = view.certificate.outputs[o];
          parts.model.textContent = number(value, 12);
          if (!targets) return;
          const target = targets[token][o],
            gap = Math.abs(value - target);
          parts.target.textContent = number(target, 12);
          parts.fill.style.width = `${Math.min(100, most ? (100 * gap) / most : gap ? 100 : 0)}%`;
          parts.fill.classList.toggle("over", gap > most);
          const held = first || state.off.size ? "" : ` of the certified ${bound(most)}`;
          parts.text.textContent = `${number(gap, 3)}${held ? `, ${number(most ? (100 * gap) / most : 0, 3)} %${held}` : ""}`;
        });
        if (sequences) {
          drawBars(outputs, targets);
          this.element.querySelector("#of-token").textContent = `Token t${token}:`;
        }
        clearTimeout(speaking);
        speaking = setTimeout(() => {
          spoken.textContent = `output ${number(outputs[token][0], 6)}${targets ? `, target ${number(targets[token][0], 6)}` : ""}`;
        }, 600);
      },
    };
  }

  // What the chosen token holds, register by register, before the first layer and after each.
  function stream(view) {
    const names = view.registers.filter(
      ([name, start, stop]) => !["grid", "position", "reference"].includes(name) && stop - start <= 8,
    );
    const steps = view.layers.length + 1,
      shown = Math.min(steps, 13),
      body = make("tbody"),
      cells = [];
    for (const [name, start, stop] of names.slice(0, 24)) {
      const told = Array.from({ length: steps }, (_, step) => view.held[step]?.[name])
        .filter(Boolean)
        .pop();
      const row = Array.from({ length: shown }, () => make("td", { class: "number" }));
      cells.push({ row, start, stop });
      body.append(
        make(
          "tr",
          {},
          make("th", { scope: "row", text: name }),
          row,
          make("td", { class: "quiet hide-narrow", text: told || (name === "data" ? "one on data tokens" : "") }),
        ),
      );
    }
    const heads = ["at first", ...view.layers.map((_, l) => `layer ${l + 1}`)].slice(0, shown);
    return {
      element: make(
        "details",
        {},
        make("summary", { text: "The residual stream of the chosen token, register by register" }),
        make(
          "div",
          { class: "scroll" },
          make(
            "table",
            {},
            make(
              "thead",
              {},
              make(
                "tr",
                {},
                make("th", { scope: "col", text: "register" }),
                heads.map((text) => make("th", { scope: "col", class: "number", text })),
                make("th", { scope: "col", class: "hide-narrow", text: "holds in the end" }),
              ),
            ),
            body,
          ),
        ),
        steps > shown
          ? make("p", { class: "small quiet", text: `The first ${shown - 1} of ${steps - 1} layers.` })
          : null,
      ),
      update(trace, token, width) {
        if (!this.element.open) return;
        for (const { row, start, stop } of cells)
          row.forEach((cell, step) => {
            const from = (trace.shift + token) * width,
              values = trace.streams[step].subarray(from + start, from + stop);
            cell.textContent = Array.from(values, (value) => number(value, 4)).join(" ");
          });
      },
    };
  }

  // How far this browser is from Python, on inputs whose outputs Python wrote into the page.
  function agreement(view, model) {
    if (!view.checks || !view.checks.length) return null;
    let worst = 0;
    for (const { rows, outputs } of view.checks) {
      headsmith.outputs(model, headsmith.run(model, rows)).forEach((row, t) =>
        row.forEach((value, o) => {
          worst = Math.max(worst, Math.abs(value - outputs[t][o]));
        }),
      );
    }
    const part = view.certificate.parts.rounding,
      fine = worst <= part || worst === 0;
    return make("p", {
      class: "small quiet",
      id: "agreement",
      "data-agrees": String(fine),
      text: `This browser and Python agree on ${view.checks.length} inputs up to ${number(worst, 3)}; the certificate allows ${bound(part)} for rounding.${fine ? "" : " That is too much: do not rely on this browser."}`,
    });
  }

  function show(place, view, { state: given, onstate = () => {}, downloads = [] } = {}) {
    const model = headsmith.prepare(view),
      state = readState(view, given),
      known = Boolean(view.target && headsmith.knows(view.target));
    let dirty = true,
      frame = 0,
      stopped = false,
      saving = 0,
      shownHead = null;
    const touch = () => {
      dirty = true;
      if (!frame && !stopped) frame = requestAnimationFrame(step);
      clearTimeout(saving);
      saving = setTimeout(() => onstate(current()), 250);
    };
    const current = () => ({
      rows: state.rows,
      token: state.token,
      head: state.head,
      off: [...state.off],
      axis: state.axis,
      output: state.output,
    });
    const change = (token, input, value) => {
      state.rows[token][input] = value;
      touch();
    };
    const choose = (token) => {
      if (token >= 0 && token < state.rows.length) state.token = token;
      touch();
    };
    const resize = (length) => {
      const more = firstRows({ ...view, lengths: [length] });
      state.rows = Array.from({ length }, (_, t) => state.rows[t] || more[t]);
      state.token = Math.min(state.token, length - 1);
      touch();
    };
    const chooseHead = (name) => {
      state.head = name;
      state.column = 0;
      touch();
    };

    const control = headsmith.inputs(view, state, { change, resize, choose }),
      result = results(view, model, known);
    const stack = headsmith.stack(view, state, chooseHead),
      ledger = headsmith.ledger(view),
      pattern = headsmith.pattern(choose),
      held = stream(view);
    const over = headsmith.domain(view, model, state, { change, off: state.off });
    const detail = make("div"),
      headCard = card("One head at work", "third", detail);
    const random = make("button", {
      type: "button",
      text: "A random input",
      onclick: () => {
        state.rows = headsmith.randomRows(view, state.rows.length);
        touch();
      },
    });
    const fit = view.learner && view.learner.features === 1 && headsmith.fit ? headsmith.fit(view, model, state) : null;
    const extra = fit ? [card("What it learned", "wide", fit.element)] : [];
    const regions = view.regions
      ? [card("Linear regions", "wide", headsmith.regions(view.regions, state, change))]
      : [];
    const files = [
      view.python
        ? make("button", {
            type: "button",
            text: "Python lines",
            onclick: () => headsmith.download("model.py", view.python, "text/x-python"),
          })
        : null,
      make("button", {
        type: "button",
        text: "LaTeX table of the bill",
        onclick: () => headsmith.download("bill.tex", view.latex, "text/x-tex"),
      }),
      make("button", {
        type: "button",
        text: "JSON of this view",
        onclick: () => headsmith.download("model.json", JSON.stringify(view), "application/json"),
      }),
      ...downloads,
    ];
    place.classList.add("model");
    const column = (...cards) => make("div", { class: "column" }, cards);
    place.replaceChildren(
      column(
        promise(view),
        card(
          "Tokens, layers, heads",
          "third",
          make("p", {
            class: "small quiet",
            text: "Small bars show where the chosen token looks. Choose a head to see it at work.",
          }),
          stack.element,
        ),
        bill(view),
      ),
      column(
        card("Run it", "second", control.element, make("p", {}, random), result.element, agreement(view, model)),
        headCard,
      ),
      card("Target and error over the domain", "wide", over.element),
      ...extra,
      ...regions,
      card(
        "To take away",
        "wide",
        make("div", { class: "fields" }, files),
        view.python
          ? make(
              "details",
              {},
              make("summary", { text: "The Python lines that make this model" }),
              make("pre", { text: view.python }),
            )
          : null,
        make("details", {}, make("summary", { text: "The whole model in words" }), make("pre", { text: view.explain })),
      ),
    );

    // What does not change while inputs are dragged: a head's words, lemma and matrices.
    function describe() {
      shownHead = state.head;
      if (!state.head)
        return detail.replaceChildren(
          make("p", { class: "quiet", text: "This model has no head: an affine map is enough." }),
        );
      const [l, h] = state.head.split(".").map(Number),
        head = view.layers[l][h],
        values = model.layers[l][h].values;
      const off = make("button", {
        type: "button",
        id: "off",
        "aria-pressed": String(state.off.has(state.head)),
        text: "Switch this head off",
        onclick: () => {
          state.off.has(shownHead) ? state.off.delete(shownHead) : state.off.add(shownHead);
          off.setAttribute("aria-pressed", String(state.off.has(shownHead)));
          over.refresh();
          touch();
        },
      });
      const column = make(
        "select",
        {
          id: "column",
          onchange: () => {
            state.column = Number(column.value);
            touch();
          },
        },
        Array.from({ length: values }, (_, v) => make("option", { value: v, text: `value ${v}` })),
      );
      const portion = make("p", { class: "small", id: "share" });
      const measure = make("button", {
        type: "button",
        text: "Its share of the error",
        onclick: () => {
          const { worst, tried } = headsmith.share(model, shownHead, state.rows, performance.now() + 400);
          portion.textContent = `Were this head exact, the output would move by at most ${number(worst, 3)} on ${tried} sampled inputs (an estimate): ${number((100 * worst) / view.certificate.error, 3)} % of the certified error.`;
        },
      });
      const undecided = make("button", {
        type: "button",
        id: "undecided",
        text: "Go to where it is undecided",
        onclick: () => {
          const found = headsmith.undecided(model, shownHead);
          portion.textContent = found
            ? "Here the softmax is soft: magnify below to see the error beside the kink."
            : "No such place was found: on random lines through the domain this head never changes its mind.";
          if (found) {
            state.rows = [found];
            over.refresh();
            touch();
          }
        },
      });
      const soft = ["sink", "boltzmann"].includes(head.kind) && (view.tokens === 1 || view.blocks);
      const lemma = view.lemmas[head.kind];
      detail.replaceChildren(
        make("p", {}, make("strong", { text: `Layer ${l + 1}, ${head.name}: ${head.text}` })),
        ...head.words.map((text) => make("p", { class: "small", text })),
        make(
          "p",
          { class: "fields" },
          off,
          view.target && lemma ? measure : null,
          soft ? undecided : null,
          values > 1
            ? make("span", {}, make("label", { for: "column", class: "visually-hidden", text: "value column" }), column)
            : null,
        ),
        portion,
        ...(view.tokens > 1 ? [pattern.element] : []),
        ledger.element,
        held.element,
        make(
          "details",
          {},
          make("summary", { text: "Its matrices W_Q, W_K, W_V, W_O" }),
          headsmith.matrices(view, head),
        ),
        ...(lemma
          ? [
              make(
                "details",
                {},
                make("summary", { text: `Why it works: the lemma of ${head.kind} heads` }),
                make("pre", { text: lemma }),
              ),
            ]
          : []),
      );
    }

    function step() {
      frame = 0;
      if (stopped) return;
      if (dirty) {
        dirty = false;
        const started = performance.now(),
          trace = headsmith.run(model, state.rows, { off: state.off });
        const targets = known ? headsmith.evaluate(view.target, state.rows) : null,
          outputs = headsmith.outputs(model, trace);
        if (shownHead !== state.head || !detail.firstChild) describe();
        control.update();
        result.update(state, trace, targets);
        stack.update(
          trace,
          outputs[view.blocks ? 0 : state.token]
            .slice(0, 4)
            .map((value) => number(value, 6))
            .join(", "),
        );
        if (state.head) {
          const [l, h] = state.head.split(".").map(Number),
            token = state.token;
          ledger.update(trace, l, h, token, state.column);
          if (view.tokens > 1) pattern.update(trace, l, h, token);
        }
        held.update(trace, state.token, model.width);
        if (fit) fit.update();
        place.dataset.milliseconds = (performance.now() - started).toFixed(2);
      }
      if (over.update() || dirty) frame = requestAnimationFrame(step);
      else place.dataset.settled = "true";
    }
    held.element.addEventListener("toggle", touch);
    place.addEventListener("toggle", touch, true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      over.refresh();
      touch();
    });
    document.addEventListener("headsmith-theme", () => {
      over.refresh();
      touch();
    });
    touch();
    return {
      stop() {
        stopped = true;
        cancelAnimationFrame(frame);
        clearTimeout(saving);
      },
      current,
      model,
    };
  }

  // A button that goes from light to dark and back; the choice is kept where pages may keep things.
  function themeButton() {
    const apply = (theme) => {
      document.documentElement.dataset.theme = theme;
      document.dispatchEvent(new Event("headsmith-theme"));
    };
    try {
      const kept = localStorage.getItem("headsmith-theme");
      if (kept) apply(kept);
    } catch {
      /* pages from disk may keep nothing */
    }
    return make("button", {
      type: "button",
      id: "theme",
      text: "Light or dark",
      onclick: () => {
        const now =
          document.documentElement.dataset.theme ||
          (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
        apply(now === "dark" ? "light" : "dark");
        try {
          localStorage.setItem("headsmith-theme", document.documentElement.dataset.theme);
        } catch {
          /* the same */
        }
      },
    });
  }

  // The state in the address, after #: JSON, so that a link holds everything.
  function fromAddress() {
    try {
      return JSON.parse(decodeURIComponent(location.hash.slice(1))) || {};
    } catch {
      return {};
    }
  }

  function toAddress(state) {
    try {
      history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
    } catch {
      /* some pages from disk may not */
    }
  }

  Object.assign(headsmith, { show, card, themeButton, fromAddress, toAddress });
})(globalThis);
