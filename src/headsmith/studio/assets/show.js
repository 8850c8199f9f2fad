// One model on a page: its promise, its bill, inputs to drag, its heads, its error over the domain.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number, bound, card, promise, bill, results, stream, agreement } = headsmith;

  // The middle of the domain, or a quarter of the way where that tells more; of a sequence, a wave.
  function firstRows(view) {
    const count =
      view.tokens > 1 && !view.blocks ? view.lengths.filter((length) => length <= 64).pop() || view.lengths[0] : 1;
    return Array.from({ length: count }, (_, t) =>
      view.names.map((_, i) => {
        if (view.kind === "learner" && i === view.learner.features) return firstLabel(view, t, i);
        const share = count > 1 ? 0.5 + 0.35 * Math.sin(2.4 * t + 1.7 * i + 0.4) : i % 2 ? 0.2 : 0.7;
        return Number((view.low[i] + share * (view.high[i] - view.low[i])).toPrecision(4));
      }),
    );
  }

  // A label that follows the first feature, with some noise; for a logistic learner, a class.
  function firstLabel(view, t, i) {
    const middle = (view.low[i] + view.high[i]) / 2,
      half = (view.high[i] - view.low[i]) / 2;
    const wave = 0.6 * Math.sin(2.4 * t + 0.4) + 0.1 * Math.sin(9 * t);
    if (view.learner.rule.loss === "logistic") return wave + 0.4 * Math.sin(5 * t) > 0 ? view.high[i] : view.low[i];
    return Number((middle + half * wave).toPrecision(3));
  }

  // The first head, as "layer.head": layers of neurons have none.
  function firstHead(view) {
    const layer = view.layers.findIndex((heads) => heads.length > 0);
    return layer < 0 ? null : `${layer}.0`;
  }

  function readState(view, given = {}) {
    const state = {
      rows: firstRows(view),
      token: 0,
      head: firstHead(view),
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
    if (whole(given.other, view.names.length)) state.other = given.other;
    if (given.zoom >= 0 && given.zoom <= 8) state.zoom = Number(given.zoom);
    if (whole(given.output, view.certificate.outputs.length)) state.output = given.output;
    const there = (name) => typeof name === "string" && view.layers[name.split(".")[0]]?.[name.split(".")[1]];
    if (there(given.head)) state.head = given.head;
    state.off = new Set((Array.isArray(given.off) ? given.off : []).filter(there));
    return state;
  }

  // What the registers hold that a head's words name, and how much of the proven error is this head's own.
  function facts(view, layer, head) {
    const held = view.held[layer] || {},
      words = head.words.join(" ");
    const named = Object.keys(held).filter((name) => new RegExp(`(^|[^\\w.])${escaped(name)}(?![\\w.])`).test(words));
    const found = named.length ? [`Here ${named.map((name) => `${name} holds ${held[name]}`).join(", ")}.`] : [];
    const columns = headsmith.columnNames(view),
      after = view.held[layer + 1] || {},
      width = head.W_O.shape[1],
      into = [...new Set(head.W_O.at.map((place) => columns[place % width].replace(/\[\d+\]$/, "")))],
      told = into.filter((name) => after[name]);
    if (told.length) found.push(`It is added to ${told.map((name) => `${name}, which then holds ${after[name]}`).join("; ")}.`);
    if (layer === view.layers.length - 1 && !view.last) found.push(`The read-out is ${view.readout.slice(0, 3).join(", ")}.`);
    if (!head.share) return found;
    const whole = Object.values(head.share).reduce((sum, value) => sum + value, 0),
      parts = Object.entries(head.share).filter(([, value]) => value > 0.005 * whole);
    const most = view.certificate.error,
      percent = most ? `, ${bound(Math.min((100 * whole) / most, 100), 3)} % of the whole` : "";
    const split = parts.length ? `: ${parts.map(([name, value]) => `${name} ${bound(value, 3)}`).join(", ")}` : "";
    return [...found, `Its share of the proven error is ${bound(whole, 3)}${percent}${split}.`];
  }

  const escaped = (text) => text.replace(/[^\w]/g, "\\$&");

  function show(place, view, { state: given, onstate = () => {}, downloads = [], askPython = null } = {}) {
    const model = headsmith.prepare(view),
      state = readState(view, given),
      known = Boolean(view.target && headsmith.knows(view.target));
    let dirty = true,
      frame = 0,
      stopped = false,
      saving = 0,
      shownHead = null,
      late = false; // what a learner has learned is drawn in every second frame
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
      other: state.other,
      zoom: state.zoom,
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
    const told = make("p", { class: "small", id: "python", role: "status" });
    const ask = make("button", {
      type: "button",
      id: "ask-python",
      text: "Ask Python",
      onclick: async () => {
        const rows = state.rows.map((row) => row.slice());
        try {
          const theirs = await askPython(rows),
            mine = headsmith.outputs(model, headsmith.run(model, rows));
          let apart = 0;
          mine.forEach((row, t) =>
            row.forEach((value, o) => (apart = Math.max(apart, Math.abs(value - theirs[t][o])))),
          );
          const token = view.blocks ? 0 : state.token;
          told.textContent = `Python: ${theirs[token].map((value) => number(value, 12)).join(", ")}. This browser differs by ${number(apart, 3)}; the certificate allows ${bound(view.certificate.parts.rounding)} for rounding.`;
        } catch (problem) {
          told.textContent = problem.message;
        }
      },
    });
    const fit = view.learner && known ? headsmith.fit(view, model, state) : null;
    const extra = fit ? [card("What it learned", "second", fit.element)] : [];
    const regions = view.regions
      ? [card("Linear regions", "wide", headsmith.regions(view.regions, state, change))]
      : [];
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
            text: `${
              view.tokens > 1
                ? "Small pictures show who looks at whom, a row for each data token."
                : "Small bars show where the data token looks."
            } Choose a head to see it at work.`,
          }),
          stack.element,
        ),
        bill(view),
      ),
      column(
        card(
          "Run it",
          "second",
          control.element,
          make("p", { class: "fields" }, random, askPython ? ask : null),
          result.element,
          agreement(view, model),
          askPython ? told : null,
        ),
        ...extra,
        headCard,
      ),
      card("Target and error over the domain", "wide", over.element),
      ...regions,
      headsmith.takeAway(view, downloads),
    );

    // What does not change while inputs are dragged: a head's words, lemma and matrices.
    function describe() {
      shownHead = state.head;
      if (!state.head)
        return detail.replaceChildren(
          make("p", { class: "quiet", text: "This model has no head: an affine map, or neurons, are enough." }),
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
        text: "Measure its error",
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
      const soft =
        ["sink", "boltzmann"].includes(head.kind) &&
        view.attention === "softmax" &&
        (view.tokens === 1 || view.blocks);
      const lemma = view.lemmas[head.kind];
      detail.replaceChildren(
        make("p", {}, make("strong", { text: `Layer ${l + 1}, ${head.name}: ${head.text}` })),
        ...head.words.map((text) => make("p", { class: "small", text })),
        ...facts(view, l, head).map((text) => make("p", { class: "small quiet", text })),
        make(
          "p",
          { class: "fields" },
          off,
          view.target && headsmith.softened(view, head) ? measure : null,
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
                headsmith.prose(lemma),
              ),
            ]
          : []),
      );
    }

    function step() {
      frame = 0;
      if (stopped) return;
      const moving = dirty;
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
        if (fit) late = !late;
        if (fit && !late) fit.update();
        place.dataset.milliseconds = (performance.now() - started).toFixed(2);
      }
      if (late && !moving) {
        late = false;
        fit.update();
      }
      if (over.update(moving) || dirty || late) frame = requestAnimationFrame(step);
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

  Object.assign(headsmith, { show, themeButton, fromAddress, toAddress });
})(globalThis);
