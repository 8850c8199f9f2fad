// What a learner in context has learned: its predictions at every query, beside the same steps in exact arithmetic and
// beside what scikit-learn finds for the same examples. Tokens are (x, y, query), each with `features` features.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number, bound } = headsmith;

  const QUERIES = 49, // points along the curve
    MOST_ROWS = 16, // tokens in the table
    NEARLY_ZERO = 1e-12; // pivots below this share of the largest entry: the examples do not determine the weights

  const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);
  const chance = (score) => 1 / (1 + Math.exp(-score));

  // The solution of A w = b for a symmetric matrix, by Gauss's method; null where A is nearly singular.
  function solve(A, b) {
    const size = b.length,
      rows = A.map((row, i) => [...row, b[i]]),
      largest = Math.max(...A.flat().map(Math.abs));
    for (let k = 0; k < size; k++) {
      let best = k;
      for (let i = k + 1; i < size; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[best][k])) best = i;
      [rows[k], rows[best]] = [rows[best], rows[k]];
      if (!(Math.abs(rows[k][k]) > NEARLY_ZERO * largest)) return null;
      for (let i = k + 1; i < size; i++) {
        const factor = rows[i][k] / rows[k][k];
        for (let j = k; j <= size; j++) rows[i][j] -= factor * rows[k][j];
      }
    }
    const found = new Array(size).fill(0);
    for (let k = size - 1; k >= 0; k--) found[k] = (rows[k][size] - dot(rows[k].slice(0, size), found)) / rows[k][k];
    return found;
  }

  // mean of c_i x_i x_i^T + decay I.
  function curvature(X, factors, decay) {
    const size = X[0].length;
    return Array.from({ length: size }, (_, k) =>
      Array.from(
        { length: size },
        (_, j) => X.reduce((sum, x, i) => sum + factors[i] * x[k] * x[j], 0) / X.length + (k === j ? decay : 0),
      ),
    );
  }

  // mean of r_i x_i.
  const slope = (X, residuals) => X[0].map((_, k) => X.reduce((sum, x, i) => sum + residuals[i] * x[k], 0) / X.length);

  // The minimiser of mean 1/2 (w . x - y)^2 + decay/2 |w|^2.
  function ridge(X, y, decay) {
    return solve(
      curvature(
        X,
        X.map(() => 1),
        decay,
      ),
      slope(X, y),
    );
  }

  // The minimiser of mean 1/2 (w . x - y)^2 + alpha |w|_1, one weight at a time.
  function lasso(X, y, alpha) {
    const weights = X[0].map(() => 0),
      sizes = X[0].map((_, k) => X.reduce((sum, x) => sum + x[k] * x[k], 0) / X.length);
    for (let round = 0, moved = 1; round < 5000 && moved > 1e-14; round++) {
      moved = 0;
      for (let k = 0; k < weights.length; k++) {
        if (sizes[k] === 0) continue;
        const residuals = X.map((x, i) => y[i] - dot(weights, x)),
          raw = slope(X, residuals)[k] + sizes[k] * weights[k],
          next = (Math.sign(raw) * Math.max(Math.abs(raw) - alpha, 0)) / sizes[k];
        moved = Math.max(moved, Math.abs(next - weights[k]));
        weights[k] = next;
      }
    }
    return weights;
  }

  // The minimiser of the mean logistic loss + decay/2 |w|^2, by Newton's method; null where there is none.
  function logistic(X, y, decay) {
    let weights = X[0].map(() => 0);
    for (let round = 0; round < 60; round++) {
      const chances = X.map((x) => chance(dot(weights, x))),
        down = slope(
          X,
          chances.map((p, i) => p - y[i]),
        ).map((value, k) => value + decay * weights[k]),
        step = solve(
          curvature(
            X,
            chances.map((p) => p * (1 - p)),
            decay,
          ),
          down,
        );
      if (!step) return null;
      weights = weights.map((value, k) => value - step[k]);
      if (Math.max(...step.map(Math.abs)) < 1e-13 * Math.max(1, ...weights.map(Math.abs))) return weights;
    }
    return null;
  }

  // What scikit-learn finds on the same examples: how it is called there, and its prediction at a query. Null where the
  // examples do not determine it.
  function reference(rule, rows) {
    const size = rule.features,
      X = rows.map((row) => row.slice(0, size)),
      y = rows.map((row) => row[size]),
      count = rows.length;
    if (rule.scale !== undefined) {
      const predict = (query) => {
        const scores = X.map((x) => -rule.scale * x.reduce((sum, value, k) => sum + (value - query[k]) ** 2, 0)),
          most = Math.max(...scores),
          weights = scores.map((score) => Math.exp(score - most));
        return dot(weights, y) / weights.reduce((sum, weight) => sum + weight, 0);
      };
      const told = `weights=lambda d: np.exp(-${number(rule.scale, 4)} * d**2)`;
      return { name: `KNeighborsRegressor(n_neighbors=${count}, ${told})`, predict };
    }
    const decay = (1 - rule.kept) / rule.rate,
      alpha = (rule.cut || 0) / rule.rate;
    let weights, name;
    if (rule.loss === "logistic") {
      weights = logistic(X, y, decay);
      name = decay
        ? `LogisticRegression(C=${number(1 / (count * decay), 4)}, fit_intercept=False)`
        : "LogisticRegression(penalty=None, fit_intercept=False)";
    } else if (alpha && decay) return null;
    else if (alpha) {
      weights = lasso(X, y, alpha);
      name = `Lasso(alpha=${number(alpha, 4)}, fit_intercept=False)`;
    } else {
      weights = ridge(X, y, decay);
      name = decay
        ? `Ridge(alpha=${number(count * decay, 4)}, fit_intercept=False)`
        : "LinearRegression(fit_intercept=False)";
    }
    return weights && { name, weights, predict: (query) => dot(weights, query) };
  }

  // Predictions of the model and of exact arithmetic at many queries, as many at once as there are tokens.
  function predictions(view, model, rows, queries) {
    const found = [],
      exact = [],
      shown = view.learner.features + 1;
    for (let start = 0; start < queries.length; start += rows.length) {
      const asked = rows.map((row, t) => [
        ...row.slice(0, shown),
        ...queries[Math.min(start + t, queries.length - 1)],
      ]);
      const outputs = headsmith.run(model, asked).output,
        targets = headsmith.evaluate(view.target, asked);
      outputs.forEach((row, t) => {
        if (start + t < queries.length) {
          found.push(row[0]);
          exact.push(targets[t][0]);
        }
      });
    }
    return { found, exact };
  }

  const apart = (one, other) => Math.max(...one.map((value, i) => Math.abs(value - other[i])));

  // The curve of predictions along one feature of the query, with the examples where there is only one feature.
  function curve(view, state, along, queries, series) {
    const size = view.learner.features,
      place = size + 1 + along,
      low = view.low[place],
      high = view.high[place];
    const levels = [view.low[size], view.high[size]].map((at) => ({ at, shown: false }));
    const { chart } = headsmith.lineChart({
      low,
      high,
      points: queries.map((query) => query[along]),
      series,
      levels,
      label: size > 1 ? `${view.names[place]}; the query's other features are those of token t${state.token}` : "query",
      name: "predictions over all queries",
      marker: state.rows[state.token][place],
    });
    if (size > 1) return chart;
    const box = chart.querySelector("rect"),
      [left, top, wide, tall] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
    const values = [...series.flatMap((each) => each.values), view.low[1], view.high[1]],
      least = Math.min(...values),
      most = Math.max(...values),
      pad = 0.06 * (most - least);
    for (const [x, y] of state.rows)
      chart.append(
        make("circle", {
          cx: left + ((x - low) / (high - low)) * wide,
          cy: top + ((most + pad - y) / (most - least + 2 * pad)) * tall,
          r: 4,
          fill: "none",
          stroke: headsmith.css("--ink"),
          "stroke-width": 1.5,
        }),
      );
    return chart;
  }

  // For each token: its query's prediction by the transformer, by exact steps, by scikit-learn.
  function table(view, state, model, best) {
    const size = view.learner.features,
      queries = state.rows.slice(0, MOST_ROWS).map((row) => row.slice(size + 1)),
      { found, exact } = predictions(view, model, state.rows, queries);
    const names = ["query", "transformer", "exact steps", ...(best ? ["scikit-learn"] : [])];
    const rows = queries.map((query, t) => [
      `t${t}`,
      query.map((value) => number(value, 3)).join(", "),
      ...[found[t], exact[t], ...(best ? [best.predict(query)] : [])].map((value) => number(value, 6)),
    ]);
    const columns = [["token"], ...names.map((name) => [name, "number"])];
    return headsmith.table("predictions at every token's own query", columns, rows).element;
  }

  function fit(view, model, state) {
    const { features: size, rule } = view.learner,
      chances = rule.loss === "logistic",
      chart = make("div", { style: { maxWidth: "44rem" } }),
      told = make("p", { class: "small" }),
      numbers = make("details", {}, make("summary", { text: "Every token's own query, in numbers" })),
      inside = make("div");
    let along = 0;
    numbers.append(inside);
    const which = make(
      "select",
      {
        id: "along",
        onchange: () => {
          along = Number(which.value);
          update();
        },
      },
      Array.from({ length: size }, (_, k) => make("option", { value: k, text: view.names[size + 1 + k] })),
    );
    const intro = `${size > 1 ? "Each token holds an example." : "Circles are the examples that the tokens hold."} The model predicts the label of any query; drag the bars above and it learns anew.${chances ? " Scores w · q are drawn as chances, 1/(1 + exp(-score))." : ""}`;

    function update() {
      const place = size + 1 + along,
        low = view.low[place],
        high = view.high[place];
      const queries = Array.from({ length: QUERIES }, (_, i) => {
        const query = state.rows[state.token].slice(size + 1);
        query[along] = low + ((high - low) * i) / (QUERIES - 1);
        return query;
      });
      const { found, exact } = predictions(view, model, state.rows, queries),
        best = reference(rule, state.rows),
        theirs = best && queries.map(best.predict),
        drawn = (values) => (chances ? values.map(chance) : values);
      const series = [
        { name: "exact steps", colour: "--sky", wide: 6, values: drawn(exact) },
        { name: "transformer", colour: "--blue", wide: 1.8, values: drawn(found) },
      ];
      if (best) series.push({ name: "scikit-learn", colour: "--pink", wide: 1.8, values: drawn(theirs) });
      chart.replaceChildren(curve(view, state, along, queries, series));
      if (numbers.open) inside.replaceChildren(table(view, state, model, best));
      const steps = `From exact arithmetic of the same ${rule.scale === undefined ? "steps" : "mean"}: ${number(apart(found, exact), 3)} at most over these queries, and ${bound(view.certificate.error, 4)} by proof.`;
      const rest =
        rule.scale === undefined
          ? ", because the steps are finitely many"
          : ": that is what this learner computes, and nothing else";
      told.textContent = best
        ? `${steps} From what scikit-learn's ${best.name} finds: ${number(apart(found, theirs), 3)}${rest}.${chances ? " A label y between 0 and 1 counts there as both classes, with sample_weight y and 1 - y." : ""}`
        : `${steps} The examples do not determine what scikit-learn would find.`;
    }

    const choice = size > 1 ? make("p", {}, make("label", { for: "along", text: "along " }), which) : null;
    return {
      element: make("div", {}, make("p", { class: "small quiet", text: intro }), choice, chart, told, numbers),
      update,
    };
  }

  Object.assign(headsmith, { fit, reference });
})(globalThis);
