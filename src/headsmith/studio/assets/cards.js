// The cards of a model's page: its promise, its bill, what it returns, what its stream holds.
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
      (view.notes || []).map((text) => make("p", { class: "small quiet", text: `Of the file: ${text}` })),
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
          make("td", {
            class: "quiet hide-narrow told cut",
            text: told || (name === "data" ? "one on data tokens" : ""),
            title: told,
          }),
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

  Object.assign(headsmith, { card, promise, bill, results, stream, agreement });
})(globalThis);
