// The studio's page: ask for a model, wait for it, show it. The address holds all of it.
(function () {
  "use strict";
  const headsmith = globalThis.headsmith;
  const { make, number, fromAddress, toAddress } = headsmith;
  const find = (name) => document.getElementById(name);
  const FIELDS = ["formula", "domain", "error", "recipe", "dtype"];
  const FIRST = { formula: "x*y", domain: "-1:1", error: "1e-6", recipe: "auto", dtype: "float64", tokens: 1 };
  const FORMULAS = [
    ["Multiply two numbers in one head", { ...FIRST }],
    ["The larger of two numbers", { ...FIRST, formula: "max(x, y)" }],
    ["Both at once", { ...FIRST, formula: "x*y, max(x, y)" }],
    ["A curve from a table of five tokens", { ...FIRST, formula: "sin(3*x)", error: "1e-3" }],
    ["1/x from ReLU gates", { ...FIRST, formula: "1/x", domain: "0.5:1", error: "1e-3", recipe: "relu" }],
    [
      "A folded surface, with its regions",
      { ...FIRST, formula: "max(abs(x) - abs(y), x + y - 1, 0)", recipe: "relu", error: "1e-4" },
    ],
    ["A sum of three products", { ...FIRST, formula: "x*y + y*z + z*x", error: "1e-4" }],
  ];

  const EXPORTS = [
    ["onnx", "ONNX"],
    ["huggingface", "Hugging Face folder"],
    ["torch", "torch"],
    ["transformerlens", "TransformerLens"],
    ["circuit", "circuit.json"],
  ];

  let shown = null, // the model on the page
    running = null, // the name of the job that this page waits for
    state = {}; // { ask, view }: what was asked for, and what is looked at

  async function call(path, options = {}) {
    let answer, body;
    try {
      answer = await fetch(path, options);
      body = await answer.json();
    } catch {
      throw { message: "the studio does not answer: is it still running?" };
    }
    if (!answer.ok) throw body.error || { message: `the studio answered ${answer.status}` };
    return body;
  }

  const post = (request) =>
    call("/api/jobs", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    });

  // Runs a job to its end, with progress; what it found, or an error thrown.
  async function work(request, quiet = false) {
    if (!quiet && running) await call(`/api/jobs/${running}`, { method: "DELETE" }).catch(() => {});
    let job = await post(request);
    if (!quiet) {
      running = job.job;
      find("cancel").hidden = false;
      find("progress").hidden = false;
    }
    const mine = () => quiet || running === job.job;
    try {
      for (let pause = 40; job.state === "waiting" || job.state === "running"; pause = Math.min(pause * 1.5, 250)) {
        if (!quiet && mine()) tell(job.text, job.share);
        await new Promise((resolve) => setTimeout(resolve, pause));
        job = await call(`/api/jobs/${job.job}`);
      }
    } finally {
      if (!quiet && mine()) {
        running = null;
        find("cancel").hidden = true;
        find("progress").hidden = true;
      }
    }
    if (job.state === "done") return job.result || {};
    throw job.error || { kind: "cancelled", message: "cancelled" };
  }

  function tell(text, share) {
    const bar = find("progress");
    bar.firstElementChild.style.width = `${100 * share}%`;
    bar.setAttribute("aria-valuenow", Math.round(100 * share));
    find("status").textContent = `${Math.round(100 * share)} %  ${text}`;
  }

  function complain(problem) {
    const box = find("problem");
    box.hidden = !problem;
    if (!problem) return;
    const parts = [make("pre", { text: problem.message || String(problem) })];
    if (problem.smallest && state.ask && state.ask.asked) {
      const error = number(problem.smallest * 1.0001, 4);
      parts.push(
        make("button", {
          type: "button",
          text: `Compile with ${error} instead`,
          onclick: () => {
            find("error").value = error;
            compile();
          },
        }),
      );
    }
    box.replaceChildren(...parts);
  }

  function asked() {
    const found = Object.fromEntries(FIELDS.map((name) => [name, find(name).value]));
    found.tokens = Number(find("tokens").value) || 1;
    if (state.file && !found.formula.trim()) found.file = state.file.file;
    return found;
  }

  function fill(given) {
    FIELDS.forEach((name) => {
      find(name).value = given[name] === undefined ? "" : String(given[name]);
    });
    find("tokens").value = given.tokens || 1;
  }

  // Makes the model that is asked for, and shows it; `look` is where to look at first.
  async function make_model(ask, look = {}) {
    const before = state.ask;
    state.ask = ask;
    complain(null);
    find("status").textContent = "";
    const started = performance.now();
    try {
      const { model } = await work(ask);
      const view = await call(`/api/models/${model}/view.json`);
      if (state.ask !== ask) return;
      find("status").textContent = `Compiled in ${number((performance.now() - started) / 1000, 2)} s.`;
      display(view, model, look);
    } catch (problem) {
      if (state.ask !== ask) return;
      find("status").textContent = problem.kind === "cancelled" ? "Cancelled." : "";
      if (problem.kind !== "cancelled") complain(problem);
      if (shown) state.ask = before;
    }
  }

  function display(view, model, look) {
    if (shown) shown.stop();
    const place = find("model");
    delete place.dataset.settled;
    const file = make("a", {
      class: "button",
      href: `/api/models/${model}/model.safetensors`,
      download: "model.safetensors",
      text: "model.safetensors",
    });
    const made = (label, request, from, to) =>
      make("button", {
        type: "button",
        text: label,
        onclick: async () => {
          complain(null);
          try {
            await work({ ...request, model }, true);
            const link = make("a", { href: `/api/models/${model}/${from}`, download: to });
            document.body.append(link);
            link.click();
            link.remove();
          } catch (problem) {
            complain(problem);
          }
        },
      });
    const exports = EXPORTS.map(([to, label]) => made(label, { do: "export", to }, `${to}.zip`, `model-${to}.zip`));
    const page = made("This page as one file", { do: "page" }, "page.html", "model.html");
    const downloads = [file, page, ...exports];
    if (view.cannot) {
      shown = { stop() {} };
      place.classList.remove("model");
      place.replaceChildren(...headsmith.summary(view), headsmith.takeAway(view, downloads));
      place.dataset.settled = "true";
      return toAddress({ ask: state.ask });
    }
    shown = headsmith.show(place, view, {
      state: look,
      onstate: (current) => toAddress({ ask: state.ask, view: current }),
      downloads,
      askPython: async (rows) => (await work({ do: "run", model, rows }, true)).outputs,
    });
    toAddress({ ask: state.ask, view: shown.current() });
  }

  function compile() {
    chooseExample(null);
    if (find("formula").value.trim()) forget();
    find("examples").value = "";
    return make_model({ do: "compile", asked: asked() });
  }

  async function compare() {
    const wanted = asked();
    const take = (row) => {
      fill({ ...wanted, recipe: row.recipe, error: number(row.error, 6) });
      compile();
    };
    complain(null);
    try {
      const found = await work({ do: "plan", asked: wanted });
      find("status").textContent = "";
      find("plan").replaceChildren(
        headsmith.plan(wanted.formula || state.file.name, found, take, () => find("plan").replaceChildren()),
      );
    } catch (problem) {
      find("status").textContent = problem.kind === "cancelled" ? "Cancelled." : "";
      if (problem.kind !== "cancelled") complain(problem);
    }
  }

  // The fields of an example of the gallery.
  function chooseExample(example, values = {}) {
    const box = find("chosen");
    box.hidden = !example;
    if (!example) return;
    const fields = example.fields.map((field) => {
      const id = `value-${field.name}`;
      return make(
        "div",
        {},
        make("label", { for: id, text: `${field.name}, ${number(field.low)} to ${number(field.high)}` }),
        make("input", {
          id,
          "data-name": field.name,
          class: "figure",
          size: 8,
          value: values[field.name] ?? field.first,
        }),
      );
    });
    box.firstElementChild.textContent = example.title;
    box.lastElementChild.replaceChildren(
      ...fields,
      make("button", {
        type: "button",
        class: "main",
        text: "Compile the example",
        onclick: () => takeExample(example),
      }),
    );
  }

  function takeExample(example) {
    const values = Object.fromEntries(
      [...find("chosen").querySelectorAll("input")].map((field) => [field.dataset.name, Number(field.value)]),
    );
    return make_model({ do: "example", name: example.name, values });
  }

  // What may be chosen: recipes, formats, and the gallery of examples, which is returned.
  async function choices() {
    const given = await call("/api/choices").catch(() => ({ recipes: [], formats: [], examples: [] })),
      select = find("examples"),
      gallery = given.examples;
    for (const [name, options] of [
      ["recipe", given.recipes],
      ["dtype", given.formats],
    ]) {
      const chosen = find(name).value;
      if (options.length) find(name).replaceChildren(...options.map((text) => make("option", { text })));
      if (options.includes(chosen)) find(name).value = chosen;
    }
    const group = (label, titles, kind) =>
      make(
        "optgroup",
        { label },
        titles.map((title, i) => make("option", { value: `${kind}${i}`, text: title })),
      );
    select.replaceChildren(
      make("option", { value: "", text: "choose" }),
      group(
        "formulas",
        FORMULAS.map(([title]) => title),
        "f",
      ),
      group(
        "sequences and learners",
        gallery.map((each) => each.title),
        "g",
      ),
    );
    select.addEventListener("change", () => {
      const kind = select.value[0],
        place = Number(select.value.slice(1));
      if (kind === "f") {
        forget();
        fill(FORMULAS[place][1]);
        compile();
        select.value = `f${place}`;
      }
      if (kind === "g") {
        chooseExample(gallery[place]);
        takeExample(gallery[place]);
      }
    });
    return gallery;
  }

  // A file: a model is opened at once, a network waits for its domain and error.
  async function drop(file) {
    complain(null);
    try {
      const kept = await call(`/api/files/${encodeURIComponent(file.name)}`, { method: "PUT", body: file });
      chooseExample(null);
      if (kept.kind === "model") {
        forget();
        return make_model({ do: "open", file: kept.file });
      }
      state.file = kept;
      find("formula").value = "";
      find("dropped").hidden = false;
      find("dropped").replaceChildren(
        `The network in ${kept.name}: choose its domain and error, and compile. `,
        make("button", { type: "button", text: "Forget it", onclick: forget }),
      );
      find("domain").focus();
    } catch (problem) {
      complain(problem);
    }
  }

  function forget() {
    state.file = null;
    find("dropped").hidden = true;
    find("file").value = "";
  }

  function listen() {
    find("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      compile();
    });
    find("compare").addEventListener("click", compare);
    find("cancel").addEventListener("click", () => {
      if (running) call(`/api/jobs/${running}`, { method: "DELETE" }).catch(complain);
    });
    find("file").addEventListener("change", () => {
      if (find("file").files[0]) drop(find("file").files[0]);
    });
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dropping");
      if (event.dataTransfer.files[0]) drop(event.dataTransfer.files[0]);
    });
  }

  async function start() {
    document.querySelector("header").append(headsmith.themeButton());
    fill(FIRST);
    listen();
    const { ask, view } = fromAddress(),
      gallery = await choices();
    if (ask && ask.asked) fill({ ...FIRST, ...ask.asked });
    if (ask && ask.asked && ask.asked.file) {
      state.file = { file: ask.asked.file, name: ask.asked.file };
      find("formula").value = "";
    }
    if (ask && ask.do === "example")
      chooseExample(
        gallery.find((each) => each.name === ask.name),
        ask.values,
      );
    make_model(ask && ask.do ? ask : { do: "compile", asked: asked() }, view || {});
  }
  start();
})();
