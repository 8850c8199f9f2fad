// The target itself, in doubles: what the model is compared with while an input is dragged. An estimate of exact
// arithmetic, good to some 1e-15 of the numbers in it; the certificate is about exact arithmetic.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});

  const HALF_PI_ROOT = 2 / Math.sqrt(Math.PI);

  // erf by its series near zero, and 1 - erfc beyond; erfc by a continued fraction from 2.5 on.
  function erfc(x) {
    if (x < 2.5) return 1 - erf(x);
    let fraction = 0;
    for (let k = 60; k > 0; k--) fraction = k / 2 / (x + fraction);
    return Math.exp(-x * x) / (Math.sqrt(Math.PI) * (x + fraction));
  }

  function erf(x) {
    if (x < 0) return -erf(-x);
    if (x >= 2.5) return 1 - erfc(x);
    let term = x,
      sum = x;
    for (let k = 1; k < 80; k++) {
      term *= (2 * x * x) / (2 * k + 1);
      sum += term;
      if (term < 1e-18 * sum) break;
    }
    return HALF_PI_ROOT * Math.exp(-x * x) * sum;
  }

  // Bessel functions by the trapezoidal rule, which converges geometrically on their integrals.
  function bessel(order, x) {
    const steps = 64 + 2 * Math.ceil(Math.abs(x));
    let sum = 0;
    for (let k = 0; k < steps; k++) {
      const angle = (2 * Math.PI * k) / steps;
      sum += Math.cos(order * angle - x * Math.sin(angle));
    }
    return sum / steps;
  }

  const FUNCTIONS = {
    exp: Math.exp,
    log: Math.log,
    sqrt: Math.sqrt,
    sin: Math.sin,
    cos: Math.cos,
    tan: Math.tan,
    sinh: Math.sinh,
    cosh: Math.cosh,
    tanh: Math.tanh,
    arctan: Math.atan,
    arcsin: Math.asin,
    arccos: Math.acos,
    j0: (x) => bessel(0, x),
    j1: (x) => bessel(1, x),
    erf,
    sigmoid: (x) => {
      const small = Math.exp(-Math.abs(x));
      return (x >= 0 ? 1 : small) / (1 + small);
    },
    softplus: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
    gelu: (x) => (x * (x < 0 ? erfc(-x / Math.SQRT2) : 1 + erf(x / Math.SQRT2))) / 2,
    gaussian: (x) => Math.exp((-x * x) / 2),
    relu: (x) => Math.max(x, 0), // no function of formulas, but what a head of the recipe ramp stands for
    square: (x) => x * x,
    reciprocal: (x) => 1 / x,
    power: (x, exponent) => Math.pow(x, exponent),
    hypotenuse: (x) => Math.sqrt(1 + x * x),
  };

  // The value of a short program: see core/program.py.
  function runProgram(program, given) {
    const known = Array.from(given);
    for (const step of program.steps) {
      switch (step[0]) {
        case "linear":
          known.push(step[1].reduce((sum, [c, operand]) => sum + c * known[operand], step[2]));
          break;
        case "call":
          known.push(FUNCTIONS[step[1]](known[step[2]], step[3]));
          break;
        case "times":
          known.push(known[step[1]] * known[step[2]]);
          break;
        default:
          known.push(known[step[1]] / known[step[2]]);
      }
    }
    return known[known.length - 1];
  }

  // Whether all functions of a graph are known here: a function of one's own is not.
  function knows(graph) {
    const names = graph.nodes.flatMap((node) =>
      node.kind === "function"
        ? [node.name]
        : node.kind === "expression"
          ? node.program.steps.filter((step) => step[0] === "call").map((step) => step[1])
          : [],
    );
    return names.every((name) => Object.hasOwn(FUNCTIONS, name));
  }

  function affine(node, values, tokens) {
    return Array.from({ length: tokens }, (_, t) => {
      const sum = Float64Array.from(node.bias);
      for (const term of node.terms) {
        const from = values[term.node][t],
          weights = term.weights;
        if (Array.isArray(weights))
          weights.forEach((weight, i) => {
            sum[i] += weight * from[i];
          });
        else
          weights.at.forEach((place, i) => {
            const columns = weights.shape[1];
            sum[Math.floor(place / columns)] += weights.values[i] * from[place % columns];
          });
      }
      return sum;
    });
  }

  function pooled(node, rows) {
    return rows.map((_, t) => {
      const seen = node.causal ? rows.slice(0, t + 1) : rows;
      return rows[0].map((_, i) => {
        const column = seen.map((row) => row[i]);
        if (node.of === "mean") return column.reduce((sum, value) => sum + value, 0) / column.length;
        return node.of === "max" ? Math.max(...column) : Math.min(...column);
      });
    });
  }

  function attended(node, queries, keys, held) {
    return queries.map((query, t) => {
      const seen = node.causal ? t + 1 : keys.length,
        scores = [];
      for (let j = 0; j < seen; j++) scores.push(query.reduce((sum, value, f) => sum + value * keys[j][f], 0));
      const largest = Math.max(...scores),
        weights = scores.map((score) => Math.exp(score - largest));
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      return held[0].map((_, i) => weights.reduce((sum, weight, j) => sum + weight * held[j][i], 0) / total);
    });
  }

  // The target's outputs for a sequence of rows of inputs, a row for each token; null where they cannot be told here.
  function evaluate(graph, rows) {
    if (!graph) return null;
    const values = [],
      tokens = rows.length;
    const each = (argument, formula) => values[argument].map((row) => Float64Array.from(row, formula));
    const both = (one, other, formula) =>
      values[one].map((row, t) => Float64Array.from(row, (value, i) => formula(value, values[other][t][i])));
    const folded = (node, formula) =>
      values[node.arguments[0]].map((row, t) =>
        Float64Array.from(row, (_, i) => formula(...node.arguments.map((argument) => values[argument][t][i]))),
      );
    for (const node of graph.nodes) {
      switch (node.kind) {
        case "input":
          values.push(rows.map((row) => Float64Array.from(row)));
          break;
        case "affine":
          values.push(affine(node, values, tokens));
          break;
        case "relu":
          values.push(each(node.argument, (value) => Math.max(value, 0)));
          break;
        case "maximum":
          values.push(folded(node, Math.max));
          break;
        case "minimum":
          values.push(folded(node, Math.min));
          break;
        case "product":
          values.push(both(node.left, node.right, (a, b) => a * b));
          break;
        case "hypotenuse":
          values.push(both(node.left, node.right, Math.hypot));
          break;
        case "quotient":
          values.push(both(node.numerator, node.denominator, (a, b) => a / b));
          break;
        case "function":
          values.push(each(node.argument, (value) => FUNCTIONS[node.name](value, node.parameter)));
          break;
        case "expression":
          values.push(folded(node, (...given) => runProgram(node.program, given)));
          break;
        case "positional": {
          const table = headsmith.dense(node.values),
            size = node.values.shape[1];
          values.push(rows.map((_, t) => table.slice(t * size, (t + 1) * size)));
          break;
        }
        case "pool":
          values.push(pooled(node, values[node.argument]));
          break;
        case "move": {
          const from = values[node.argument];
          values.push(rows.map((_, t) => (node.targets[t] < 0 ? new Float64Array(node.size) : from[node.targets[t]])));
          break;
        }
        case "attend":
          values.push(attended(node, values[node.queries], values[node.keys], values[node.values]));
          break;
        default:
          return null;
      }
    }
    return values[graph.output].map((row) => Array.from(row));
  }

  Object.assign(headsmith, { evaluate, runProgram, knows, functions: FUNCTIONS });
})(globalThis);
