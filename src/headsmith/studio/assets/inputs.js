// Inputs to drag: sliders for one point, bars for the tokens of a sequence or for many inputs. All work by keyboard.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number } = headsmith;

  const FEW = 8; // inputs that get a slider each
  const BEYOND = 0.1; // how far sliders reach beyond the domain, on either side, in widths of it

  function reach(low, high) {
    const room = BEYOND * (high - low || 1);
    return [low - room, high + room];
  }

  // A slider and a number field for each input of one point. `change(input, value)` tells of changes.
  function sliders(view, change) {
    const box = make("div", { class: "sliders" }),
      parts = [];
    view.names.forEach((name, input) => {
      const [least, most] = reach(view.low[input], view.high[input]),
        id = `input-${input}`;
      const slider = make("input", {
        type: "range",
        min: least,
        max: most,
        step: "any",
        id,
        "aria-describedby": "outside",
      });
      const field = make("input", { type: "number", step: "any", "aria-label": `${name}, as a number` });
      slider.addEventListener("input", () => change(input, Number(slider.value)));
      // Steps of a hundredth of the domain: "any" alone would make arrow keys jump unevenly from browser to browser.
      slider.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
        if (!steps) return;
        event.preventDefault();
        const value = Number(slider.value) + (steps * (view.high[input] - view.low[input])) / 100;
        slider.value = Math.min(Math.max(value, least), most);
        change(input, Number(slider.value));
      });
      field.addEventListener("change", () => {
        if (field.value !== "" && Number.isFinite(Number(field.value))) change(input, Number(field.value));
      });
      const inside = make("span", { class: "inside", title: "the domain ends here" });
      box.append(make("label", { for: id, text: name }), make("div", { class: "track" }, slider, inside), field);
      parts.push({ slider, field });
    });
    return {
      element: box,
      update(rows) {
        rows[0].forEach((value, input) => {
          const { slider, field } = parts[input];
          if (Number(slider.value) !== value) slider.value = value;
          slider.setAttribute("aria-valuetext", `${view.names[input]} is ${number(value)}`);
          if (document.activeElement !== field) field.value = Number(value.toPrecision(8));
        });
      },
    };
  }

  // A row of bars, each a slider of its own: drag up and down, or arrow keys (left and right go to the next one).
  function bars({ label, low, high, count, name, change, choose }) {
    const [least, most] = reach(low, high),
      element = make("div", { class: "bars", role: "group", "aria-label": label });
    const place = (value) => (100 * (value - least)) / (most - least);
    const cells = Array.from({ length: count }, (_, token) => {
      const fill = make("i"),
        cell = make(
          "div",
          {
            role: "slider",
            tabindex: token ? -1 : 0,
            "aria-label": name(token),
            "aria-valuemin": least,
            "aria-valuemax": most,
          },
          fill,
        );
      cell.addEventListener("focus", () => choose(token));
      cell.addEventListener("keydown", (event) => {
        const steps = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
        const aside = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (steps) {
          event.preventDefault();
          cells[token].value = Math.min(Math.max(cells[token].value + (steps * (high - low)) / 50, least), most);
          change(token, cells[token].value);
        } else if (aside && cells[token + aside]) {
          event.preventDefault();
          cell.tabIndex = -1;
          cells[token + aside].cell.tabIndex = 0;
          cells[token + aside].cell.focus();
        }
      });
      element.append(cell);
      return { cell, fill, value: low };
    });
    const drag = (event) => {
      const box = element.getBoundingClientRect(),
        token = Math.floor(((event.clientX - box.left) / box.width) * count);
      const share = Math.min(Math.max((box.bottom - event.clientY) / box.height, 0), 1);
      if (cells[token]) {
        choose(token);
        change(token, least + share * (most - least));
      }
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      drag(event);
    });
    element.addEventListener("pointermove", (event) => {
      if (event.buttons) drag(event);
    });
    return {
      element,
      update(values, chosen) {
        const zero = Math.min(Math.max(place(0), 0), 100);
        values.forEach((value, token) => {
          const { cell, fill } = cells[token],
            at = Math.min(Math.max(place(value), 0), 100);
          cell.classList.toggle("chosen", token === chosen);
          if (cells[token].shown === value) return;
          cells[token].value = cells[token].shown = value;
          fill.style.bottom = `${Math.min(at, zero)}%`;
          fill.style.height = `${Math.max(Math.abs(at - zero), 0.8)}%`;
          cell.setAttribute("aria-valuenow", value);
          cell.setAttribute("aria-valuetext", number(value, 4));
          cell.classList.toggle("outside", !(value >= low && value <= high));
        });
      },
    };
  }

  // The tokens of a sequence: bars for each feature, a table of numbers, and how many tokens there are.
  function grid(view, state, change, resize, choose) {
    const element = make("div"),
      rows = [];
    let length = -1;
    const lengths = make(
      "select",
      { id: "length" },
      view.lengths.map((each) => make("option", { value: each, text: String(each) })),
    );
    lengths.addEventListener("change", () => resize(Number(lengths.value)));
    const { element: held, body, row } = headsmith.table("the inputs of every token", [
        ["token"],
        ...view.names.map((name) => [name]),
      ]),
      numbers = make("details", {}, make("summary", { text: "The same as numbers" }), held);
    let fields = [];
    function build() {
      length = state.rows.length;
      rows.length = 0;
      const charts = view.names.map((name, feature) => {
        const chart = bars({
          label: `${name} of every token`,
          low: view.low[feature],
          high: view.high[feature],
          count: length,
          name: (token) => `${name} of token t${token}`,
          change: (token, value) => change(token, feature, value),
          choose,
        });
        rows.push(chart);
        return [make("p", { class: "small quiet", text: `${name} of each token: drag the bars` }), chart.element];
      });
      fields = Array.from({ length }, (_, token) =>
        view.names.map((name, feature) => {
          const field = make("input", {
            type: "number",
            step: "any",
            class: "short",
            "aria-label": `${name} of token t${token}`,
          });
          field.addEventListener("change", () => {
            if (field.value !== "") change(token, feature, Number(field.value));
          });
          return field;
        }),
      );
      body.replaceChildren(...fields.map((each, token) => row([`t${token}`, ...each])));
      const many = view.lengths.length > 1 ? [make("label", { for: "length", text: "tokens" }), lengths] : [];
      element.replaceChildren(...many, ...charts.flat(), numbers);
    }
    return {
      element,
      update() {
        if (state.rows.length !== length) build();
        lengths.value = String(length);
        rows.forEach((chart, feature) =>
          chart.update(
            state.rows.map((row) => row[feature]),
            state.token,
          ),
        );
        if (numbers.open)
          fields.forEach((each, token) =>
            each.forEach((field, feature) => {
              if (document.activeElement !== field) field.value = Number(state.rows[token][feature].toPrecision(8));
            }),
          );
      },
    };
  }

  // One point with many inputs: bars, one for each input.
  function many(view, state, change) {
    const low = Math.min(...view.low),
      high = Math.max(...view.high);
    const chart = bars({
      label: "every input",
      low,
      high,
      count: view.names.length,
      name: (input) => view.names[input],
      change: (input, value) => change(0, input, value),
      choose: (input) => {
        state.axis = input;
      },
    });
    return {
      element: make(
        "div",
        {},
        make("p", { class: "small quiet", text: `${view.names.length} inputs: drag the bars` }),
        chart.element,
      ),
      update: () => chart.update(state.rows[0], state.axis),
    };
  }

  // The control that fits a model.
  function inputs(view, state, { change, resize, choose }) {
    if (view.tokens > 1 && !view.blocks) return grid(view, state, change, resize, choose);
    if (view.names.length > FEW) return many(view, state, change);
    const made = sliders(view, (input, value) => change(0, input, value));
    return { element: made.element, update: () => made.update(state.rows) };
  }

  Object.assign(headsmith, { inputs });
})(globalThis);
