// What a learner in context has learned: its examples, its prediction at every query, and where the same problem's
// exact minimiser lies, which scikit-learn finds. For one feature.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});
  const { make, number } = headsmith;

  const QUERIES = 49;

  // The weight that minimises mean 1/2 (w x - y)^2 + decay/2 w^2: scikit-learn's Ridge(alpha = m decay, no intercept).
  function minimiser(rule, rows) {
    if (rule.loss === "logistic" || rule.cut || rule.scale !== undefined) return null;
    const decay = (1 - rule.kept) / rule.rate,
      count = rows.length;
    const xx = rows.reduce((sum, [x]) => sum + x * x, 0),
      xy = rows.reduce((sum, [x, y]) => sum + x * y, 0);
    const weight = xy / (xx + count * decay);
    return Number.isFinite(weight) ? { weight, alpha: count * decay } : null;
  }

  // Predictions of the model and of exact arithmetic at many queries, as many at once as there are tokens.
  function predictions(view, model, rows, queries) {
    const found = [],
      exact = [];
    for (let start = 0; start < queries.length; start += rows.length) {
      const asked = rows.map(([x, y], t) => [x, y, queries[Math.min(start + t, queries.length - 1)]]);
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

  function fit(view, model, state) {
    const chart = make("div"),
      told = make("p", { class: "small" }),
      low = view.low[2],
      high = view.high[2];
    const queries = Array.from({ length: QUERIES }, (_, i) => low + ((high - low) * i) / (QUERIES - 1));
    return {
      element: make(
        "div",
        {},
        make("p", {
          class: "small quiet",
          text: "Circles are the examples that the tokens hold. The model predicts the label of any query; drag the bars above and it learns anew.",
        }),
        chart,
        told,
      ),
      update() {
        const { found, exact } = predictions(view, model, state.rows, queries),
          best = minimiser(view.learner.rule, state.rows);
        const series = [
          { name: "exact steps", colour: "--sky", wide: 6, values: exact },
          { name: "transformer", colour: "--blue", wide: 1.8, values: found },
        ];
        if (best)
          series.push({
            name: "scikit-learn's Ridge",
            colour: "--pink",
            wide: 1.8,
            values: queries.map((query) => best.weight * query),
          });
        const levels = [view.low[1], view.high[1]].map((at) => ({ at, shown: false }));
        const drawn = headsmith.lineChart({
          low,
          high,
          points: queries,
          series,
          levels,
          label: "query",
          name: "predictions over all queries",
          marker: state.rows[state.token][2],
        });
        const svg = drawn.chart,
          box = svg.querySelector("rect"),
          [left, top, wide, tall] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
        const values = [...series.flatMap((each) => each.values), view.low[1], view.high[1]];
        const least = Math.min(...values),
          most = Math.max(...values),
          pad = 0.06 * (most - least);
        for (const [x, y] of state.rows)
          svg.append(
            make("circle", {
              cx: left + ((x - low) / (high - low)) * wide,
              cy: top + ((most + pad - y) / (most - least + 2 * pad)) * tall,
              r: 4,
              fill: "none",
              stroke: headsmith.css("--ink"),
              "stroke-width": 1.5,
            }),
          );
        chart.replaceChildren(make("div", { style: { maxWidth: "44rem" } }, svg));
        const gap = Math.max(...found.map((value, i) => Math.abs(value - exact[i])));
        const away = best ? Math.max(...found.map((value, i) => Math.abs(value - best.weight * queries[i]))) : 0;
        told.textContent = `From exact arithmetic of the same steps: ${number(gap, 3)} at most over these queries, and ${view.certificate.shown} by proof.${best ? ` From the minimiser, which scikit-learn's Ridge(alpha=${number(best.alpha, 4)}, fit_intercept=False) finds: ${number(away, 3)}, because the steps are finitely many.` : ""}`;
      },
    };
  }

  Object.assign(headsmith, { fit, minimiser });
})(globalThis);
