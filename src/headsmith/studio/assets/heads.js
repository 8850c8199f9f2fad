// Looking inside: the layers with their heads, one head at work, and its matrices.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number, css } = headsmith;

  const MOST_HEADS = 60; // buttons of one layer
  const MOST_TOKENS = 16; // rows of the ledger
  const MOST_HELD = 3; // registers told after a layer
  const MOST_ROWS = 18,
    MOST_COLUMNS = 10; // of a matrix
  const SAMPLES = 200; // inputs that the share of a head's error is estimated from

  // Colours as a canvas holds them: red, green, blue, opacity, in the machine's order of bytes.
  const SHADES = new Uint32Array(
    Uint8Array.from(
      Array.from({ length: 256 }, (_, i) => [...headsmith.colourAt(headsmith.CIVIDIS, i / 255), 255]).flat(),
    ).buffer,
  );

  function tokenNames(view, count) {
    const prefix = view.references.shape[0];
    const references = Array.from({ length: prefix }, (_, r) => `r${r}`);
    return [...references, ...Array.from({ length: count }, (_, t) => `t${t}`)];
  }

  function tokenTold(view, place) {
    const prefix = view.references.shape[0];
    if (place >= prefix) return view.tokens === 1 ? "data" : "";
    return place < view.sinks ? "sink: zero" : "reference";
  }

  // A chip for each token, or for each run of them.
  function tokenChips(view, count) {
    const names = tokenNames(view, count),
      prefix = view.references.shape[0];
    const run = (from, to, data) => {
      if (from >= to) return [];
      const text = to - from > 12 ? `${names[from]} to ${names[to - 1]}` : null;
      const chip = (name) => make("span", { class: data ? "token data" : "token", text: name });
      return text ? [chip(text)] : names.slice(from, to).map(chip);
    };
    return [...run(0, prefix, false), ...run(prefix, names.length, true)];
  }

  // The model from top to bottom: tokens, layers, read-out. Heads are buttons.
  function stack(view, state, choose) {
    const buttons = new Map(),
      mixing = view.tokens > 1,
      list = make("ol"),
      tokens = make("div", { class: "tokens" });
    list.append(
      make(
        "li",
        { class: "level" },
        make("span", { text: "tokens (r: constant reference tokens, t: data tokens)" }),
        tokens,
      ),
    );
    view.layers.forEach((heads, l) => {
      const row = make("div", { class: "heads" });
      const add = (from, to) =>
        heads.slice(from, to).forEach((head, index) => {
          const name = `${l}.${from + index}`,
            canvas = make("canvas", { width: 96, height: 18, "aria-hidden": "true", class: mixing ? "thumb" : null });
          const button = make(
            "button",
            {
              type: "button",
              class: "head",
              "aria-pressed": "false",
              title: `${head.name}: ${head.text}`,
              onclick: () => choose(name),
            },
            make("span", { text: head.name }),
            make("span", { class: "quiet", text: head.text }),
            canvas,
          );
          buttons.set(name, { button, canvas });
          row.append(button);
        });
      add(0, MOST_HEADS);
      if (heads.length > MOST_HEADS) {
        const more = make("button", {
          type: "button",
          text: `${heads.length - MOST_HEADS} more heads`,
          onclick: () => {
            more.remove();
            add(MOST_HEADS, heads.length);
            choose(state.head);
          },
        });
        row.append(more);
      }
      const neurons = view.neurons[l];
      if (neurons)
        row.append(
          ...neurons.units.map(([text, words]) => make("span", { class: "token data", title: words, text })),
        );
      list.append(
        make(
          "li",
          { class: "level" },
          make("span", {
            text: neurons
              ? `layer ${l + 1}: a SwiGLU block of ${neurons.W_down.shape[0]} neurons, added to the stream`
              : `layer ${l + 1}: ${heads.length} head${heads.length === 1 ? "" : "s"}, added to the stream`,
          }),
          row,
          thenHeld(view, l).map((text) => make("p", { class: "small quiet then", title: text, text })),
        ),
      );
    });
    const result = make("span", { class: "token data" });
    const last = view.last ? `read-out: a softmax over ${view.last[0].shape[1]} answers` : "read-out";
    list.append(
      make(
        "li",
        { class: "level" },
        make("span", { text: last }),
        view.last ? null : view.readout.map((text) => make("p", { class: "small quiet then", title: text, text })),
        make("div", { class: "tokens" }, result),
      ),
    );
    let shown = -1;
    return {
      element: make(
        "div",
        { class: "stack", tabindex: 0, role: "region", "aria-label": "tokens, layers and heads" },
        list,
      ),
      update(trace, output) {
        if (shown !== trace.count) {
          tokens.replaceChildren(...tokenChips(view, trace.count));
          shown = trace.count;
        }
        result.textContent = output;
        const colour = css("--blue");
        for (const [name, { button, canvas }] of buttons) {
          const [l, h] = name.split(".").map(Number),
            chosen = name === state.head;
          if ((button.getAttribute("aria-pressed") === "true") !== chosen)
            button.setAttribute("aria-pressed", String(chosen));
          button.classList.toggle("off", state.off.has(name));
          if (buttons.size > 2 * MOST_HEADS && !chosen) continue;
          if (mixing) paintPattern(canvas, trace, l, h);
          else sparkline(canvas, trace, l, h, state.token, colour);
        }
      },
    };
  }

  // What registers hold after a layer that has written to them: the first few, where Python can tell.
  function thenHeld(view, l) {
    const told = Object.entries(view.held[l + 1] || {}),
      lines = told.slice(0, MOST_HELD).map(([name, text]) => `then ${name} = ${text}`);
    return told.length > MOST_HELD ? [...lines, `and ${told.length - MOST_HELD} more registers`] : lines;
  }

  // Where a head looks, as a row of small bars.
  function sparkline(canvas, trace, l, h, token, colour) {
    const context = canvas.getContext("2d"),
      { weights } = trace.layers[l][h],
      total = trace.total;
    const row = weights.subarray((trace.shift + token) * total, (trace.shift + token + 1) * total),
      wide = canvas.width / total;
    const most = row.reduce((largest, weight) => Math.max(largest, weight), 0),
      scale = canvas.height / most;
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = colour;
    for (let j = 0; j < total; j++)
      context.fillRect(j * wide, canvas.height - scale * row[j], Math.max(wide - 1, 0.7), scale * row[j]);
  }

  // One head at work on one token: scores, weights, values, their products and the sum.
  function ledger(view) {
    const foot = make("td", { class: "number", colspan: 2 }),
      note = make("p", { class: "small quiet" });
    const columns = [
      ["token"],
      ["", "hide-narrow"],
      ["score", "number"],
      ["weight", "number"],
      ["", "hide-narrow"],
      ["value", "number"],
      ["product", "number"],
    ];
    const sum = make(
      "tr",
      {},
      make("th", { scope: "row", colspan: 3, text: "returned: the sum" }),
      make("td", { class: "hide-narrow", colspan: 2 }),
      foot,
    );
    const {
      element: table,
      body,
      row,
    } = headsmith.table("scores, weights and values of the chosen head", columns, [], {
      kind: "ledger",
      foot: make("tfoot", {}, sum),
    });
    let rows = [];
    return {
      element: make("div", {}, table, note),
      update(trace, l, h, token, column) {
        const { scores, weights, held, values, output } = trace.layers[l][h],
          total = trace.total,
          start = (trace.shift + token) * total;
        let shown = Array.from({ length: total }, (_, j) => j);
        if (total > MOST_TOKENS) {
          shown.sort((a, b) => weights[start + b] - weights[start + a]);
          shown = shown.slice(0, MOST_TOKENS).sort((a, b) => a - b);
        }
        while (rows.length < shown.length) {
          const cells = [
            make("th", { scope: "row" }),
            make("td", { class: "quiet hide-narrow told" }),
            ...[0, 1].map(() => make("td", { class: "number" })),
            make("td", { class: "weight hide-narrow" }, make("span", { class: "bar" })),
            ...[0, 1].map(() => make("td", { class: "number" })),
          ];
          rows.push({ row: row(cells), cells });
          body.append(rows[rows.length - 1].row);
        }
        while (rows.length > shown.length) rows.pop().row.remove();
        const names = tokenNames(view, trace.count);
        let left = 1;
        shown.forEach((j, i) => {
          const { cells } = rows[i],
            weight = weights[start + j],
            value = held[j * values + column];
          const mine = j === trace.prefix + token && trace.count > 1 ? "itself" : "";
          const texts = [
            names[j],
            tokenTold(view, j) + mine,
            scores[start + j] === -Infinity ? "hidden" : number(scores[start + j], 5),
            number(weight, 4),
            null,
            number(value, 5),
            number(weight * value, 5),
          ];
          texts.forEach((text, c) => {
            if (text !== null && cells[c].textContent !== text) cells[c].textContent = text;
          });
          cells[4].firstChild.style.width = `${100 * weight}%`;
          left -= weight;
        });
        foot.textContent = number(output[(trace.shift + token) * values + column], 9);
        note.textContent =
          total > MOST_TOKENS
            ? `The ${MOST_TOKENS} tokens that weigh most, of ${total}; all others together weigh ${number(Math.max(left, 0), 3)}.`
            : "";
      },
    };
  }

  // Paints a head's weights, a row for each data token, a column for each token; returns the largest weight.
  function paintPattern(canvas, trace, l, h) {
    const { weights } = trace.layers[l][h],
      total = trace.total,
      first = trace.shift * total,
      shown = weights.subarray(first, first + trace.count * total);
    if (canvas.width !== total || canvas.height !== trace.count) {
      canvas.width = total;
      canvas.height = trace.count;
    }
    const context = canvas.getContext("2d"),
      image = context.createImageData(total, trace.count),
      pixels = new Uint32Array(image.data.buffer);
    const most = shown.reduce((largest, weight) => Math.max(largest, weight), 0),
      scale = most ? 255 / most : 0;
    for (let i = 0; i < shown.length; i++) pixels[i] = SHADES[Math.round(Math.max(scale * shown[i], 0))];
    context.putImageData(image, 0, 0);
    return most;
  }

  // Who looks at whom: a row for each data token, a column for each token; click a row to choose its token.
  function pattern(choose) {
    const canvas = make("canvas", {
      class: "pattern",
      role: "img",
      "aria-label": "attention pattern: queries down, keys across",
    });
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      choose(Math.floor(((event.clientY - box.top) / box.height) * canvas.height));
    });
    const told = make("figcaption", { class: "small quiet" });
    return {
      element: make("figure", { style: { margin: "0" } }, canvas, told),
      update(trace, l, h, token) {
        const most = paintPattern(canvas, trace, l, h);
        canvas.style.aspectRatio = `${trace.total} / ${trace.count}`;
        canvas.style.maxHeight = "22rem";
        canvas.dataset.token = token;
        told.textContent = `Who looks at whom: one row for each data token (click to choose), one column for each token. Bright is a weight of ${number(most, 3)}, dark is none.`;
      },
    };
  }

  // The names of the stream's columns.
  function columnNames(view) {
    const names = new Array(view.width);
    for (const [name, start, stop] of view.registers) {
      for (let c = start; c < stop; c++) names[c] = stop - start === 1 ? name : `${name}[${c - start}]`;
    }
    return names;
  }

  // A small matrix with labels; only rows and columns that are not zero.
  function matrix(title, told, stored, rowName, columnName) {
    const [, width] = stored.shape,
      entries = new Map();
    stored.at.forEach((place, i) => entries.set(`${Math.floor(place / width)},${place % width}`, stored.values[i]));
    const rows = [...new Set(stored.at.map((place) => Math.floor(place / width)))].sort((a, b) => a - b);
    const columns = [...new Set(stored.at.map((place) => place % width))].sort((a, b) => a - b);
    const largest = Math.max(...stored.values.map(Math.abs), 1e-300),
      logs = stored.values.map((value) => Math.log(Math.abs(value)));
    const least = Math.min(...logs, Math.log(largest) - 1);
    const cell = (row, column) => {
      const value = entries.get(`${row},${column}`);
      if (value === undefined) return make("td", { class: "quiet", text: "0" });
      const depth = 0.15 + 0.4 * ((Math.log(Math.abs(value)) - least) / (Math.log(largest) - least || 1));
      const hue = value > 0 ? "230, 85, 13" : "8, 81, 156";
      return make("td", {
        text: number(value, 4),
        title: String(value),
        style: { backgroundColor: `rgba(${hue}, ${depth})` },
      });
    };
    const cut = columns.length > MOST_COLUMNS,
      shown = columns.slice(0, MOST_COLUMNS);
    const body = rows.slice(0, MOST_ROWS).map((row) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", text: rowName(row) }),
        shown.map((column) => cell(row, column)),
        cut ? make("td", { text: "…" }) : null,
      ),
    );
    const more =
      rows.length > MOST_ROWS || cut
        ? make("p", {
            class: "small quiet",
            text: `${rows.length} rows and ${columns.length} columns are not zero; the first are shown.`,
          })
        : null;
    const empty = rows.length ? null : make("p", { class: "small quiet", text: "all zero" });
    return make(
      "figure",
      {},
      make("figcaption", { text: title }),
      make("p", { class: "small quiet", text: told }),
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          { class: "matrix", "aria-label": `${title}: ${told}` },
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              make("td"),
              shown.map((column) => make("th", { scope: "col", text: columnName(column) })),
            ),
          ),
          make("tbody", {}, body),
        ),
      ),
      more,
      empty,
    );
  }

  function matrices(view, head) {
    const names = columnNames(view),
      stream = (c) => names[c],
      feature = (c) => `feature ${c}`,
      value = (c) => `value ${c}`;
    return make(
      "div",
      { class: "matrices" },
      matrix("W_Q", "stream to query", head.W_Q, stream, feature),
      matrix("W_K", "stream to key", head.W_K, stream, feature),
      matrix("W_V", "stream to value", head.W_V, stream, value),
      matrix("W_O", "value to stream", head.W_O, value, stream),
    );
  }

  // A random sequence in the domain, of the length that is shown.
  function randomRows(view, count) {
    return Array.from({ length: count }, () =>
      view.names.map((_, i) => view.low[i] + Math.random() * (view.high[i] - view.low[i])),
    );
  }

  // How far the output moves at most, over sampled inputs, if this head alone returned exactly what it stands for.
  function share(model, name, rows, until) {
    const only = new Set([name]);
    let worst = 0,
      tried = 0;
    for (; tried < SAMPLES && (tried < 8 || performance.now() < until); tried++) {
      const given = tried ? randomRows(model.view, rows.length) : rows;
      const soft = headsmith.run(model, given).output,
        exact = headsmith.run(model, given, { exact: only }).output;
      soft.forEach((row, t) =>
        row.forEach((value, o) => {
          worst = Math.max(worst, Math.abs(value - exact[t][o]));
        }),
      );
    }
    return { worst, tried };
  }

  // A point where a head divides its attention, found by bisection on a random line: the error of a gate or of a
  // maximum of two peaks where the larger weight is about 0.78.
  function undecided(model, name) {
    const { view } = model,
      [l, h] = name.split(".").map(Number);
    const look = (point) => {
      const trace = headsmith.run(model, [point]),
        start = trace.shift * trace.total;
      return trace.layers[l][h].weights.subarray(start, start + trace.total);
    };
    for (let tried = 0; tried < 60; tried++) {
      let [a] = randomRows(view, 1),
        [b] = randomRows(view, 1);
      const first = look(a),
        token = first.indexOf(Math.max(...first));
      if (first[token] < 0.78 || look(b)[token] > 0.5) continue;
      for (let step = 0; step < 80; step++) {
        const middle = a.map((value, i) => (value + b[i]) / 2);
        if (look(middle)[token] > 0.78) a = middle;
        else b = middle;
      }
      return a;
    }
    return null;
  }

  Object.assign(headsmith, { undecided, stack, ledger, pattern, matrices, share, columnNames, randomRows });
})(globalThis);
