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
    const columns = [["part"], ["bound", "number"], ["share", "share"]];
    const rows = names.map((name, i) => [
      make("th", { scope: "row" }, name, make("span", { class: "meaning", text: certificate.meaning[name] })),
      bound(certificate.parts[name], 4),
      make("span", {
        class: `bar part${i}`,
        style: { width: `${all ? (100 * certificate.parts[name]) / all : 0}%` },
      }),
    ]);
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
        make("strong", { text: bound(all, 4) }),
        ` for every input in the domain${tokens}, run in ${certificate.dtype}`,
      ),
      make("p", {
        class: "small quiet",
        text: view.verified
          ? "Proven: the proof was checked again, from the weights, when this view was made."
          : "Proven: the kernel checked the proof, from the weights, when the model was made.",
      }),
      view.assumed
        ? make("p", { class: "small quiet", text: `Assumed of the target, which was sampled: ${view.assumed}` })
        : null,
      (view.notes || []).map((text) => make("p", { class: "small quiet", text: `Of the file: ${text}` })),
      headsmith.table("the parts of the certified error", columns, rows, { head: false }).element,
    );
  }

  function bill(view) {
    const columns = [["what"], ["how much", "number"], ["meaning", "quiet hide-narrow"]];
    return card("The bill", "", headsmith.table("what the model costs", columns, view.bill, { head: false }).element);
  }

  // What is told of a model that a page cannot run: `view.cannot` says why.
  function summary(view) {
    return [
      promise(view),
      make("p", { class: "warn", text: `This page does not run the model: ${view.cannot}.` }),
      bill(view),
    ];
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
        const zero = place(0);
        row.forEach((bar, t) => {
          const { fill, line } = bar,
            at = place(outputs[t][o]),
            wanted = targets ? place(targets[t][o]) : NaN,
            now = [at, zero, wanted].map((share) => share.toFixed(2)).join();
          if (bar.shown === now) return;
          bar.shown = now;
          fill.style.bottom = `${Math.min(at, zero)}%`;
          fill.style.height = `${Math.max(Math.abs(at - zero), 0.8)}%`;
          line.hidden = !targets;
          if (targets) line.style.bottom = `calc(${wanted}% - 1px)`;
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
      cells = [];
    const heads = ["at first", ...view.layers.map((_, l) => `layer ${l + 1}`)].slice(0, shown),
      columns = [["register"], ...heads.map((text) => [text, "number"]), ["holds in the end", "hide-narrow"]],
      { element, body, row: line } = headsmith.table("the residual stream of the chosen token", columns);
    for (const [name, start, stop] of names.slice(0, 24)) {
      const told = Array.from({ length: steps }, (_, step) => view.held[step]?.[name])
        .filter(Boolean)
        .pop();
      const row = Array.from({ length: shown }, () => make("td", { class: "number" }));
      cells.push({ row, start, stop });
      const text = told || (name === "data" ? "one on data tokens" : "");
      body.append(line([name, ...row, make("td", { class: "quiet hide-narrow told cut", text, title: told })]));
    }
    return {
      element: make(
        "details",
        {},
        make("summary", { text: "The residual stream of the chosen token, register by register" }),
        element,
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

  // Everything of a model that can be kept; `downloads` are files that a server makes.
  function takeAway(view, downloads = []) {
    const save = (text, name, content, type) =>
      make("button", { type: "button", text, onclick: () => headsmith.download(name, content(), type) });
    const told = (title, text) => make("details", {}, make("summary", { text: title }), make("pre", { text }));
    return card(
      "To take away",
      "wide",
      make(
        "div",
        { class: "fields" },
        downloads,
        view.python ? save("Python lines", "model.py", () => view.python, "text/x-python") : null,
        save("LaTeX table of the bill", "bill.tex", () => view.latex, "text/x-tex"),
        save("JSON of this view", "model.json", () => JSON.stringify(view), "application/json"),
      ),
      view.python ? told("The Python lines that make this model", view.python) : null,
      told("The whole model in words", view.explain),
    );
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
    const format = headsmith.formatOf(view),
      elsewhere =
        format === view.certificate.dtype
          ? ""
          : `The certificate is about a run in ${view.certificate.dtype}; this page does not know that format and runs the model in ${format}, which rounds less. `;
    const part = view.certificate.parts.rounding,
      fine = worst <= part || worst === 0;
    return make("p", {
      class: "small quiet",
      id: "agreement",
      "data-agrees": String(fine),
      text: `${elsewhere}This browser and Python agree on ${view.checks.length} inputs ${worst ? `up to ${number(worst, 3)}` : "exactly"}; the certificate allows ${bound(part)} for rounding.${fine ? "" : " That is too much: do not rely on this browser."}`,
    });
  }

  Object.assign(headsmith, { card, promise, bill, summary, results, stream, takeAway, agreement });
})(globalThis);
