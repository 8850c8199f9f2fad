// The model at work: textbook attention in the model's own number format, with every intermediate kept.
//
//     X <- X + sum over heads h of softmax(X W_Q (X W_K)^T) X W_V W_O          for each layer; scores are not divided
//     X <- X + (silu(X W_gate) * (X W_up)) W_down                              for a layer of neurons
//
// Other attentions have other weights in place of softmax: see `weigh` below and heads/attentions.py.
//
// The rows of reference tokens are constants and are not computed: nothing reads what heads write there, but for the
// sink, which stays zero within the certificate's leak. The numpy runner leaves them out as well. `references: true`
// computes them all the same.
//
// A model of float32 keeps its numbers in Float32Arrays: JavaScript computes a product and a sum in doubles, and storing
// it rounds to float32, once, as a fused multiply-add does. The certificate covers runs that fuse, and those that do not.
// Formats that are not known here are run in float64, which rounds less than the certificate allows; the page says so.
//
// No library and no module system: the same file runs from the studio, inside a saved page and under node.
(function (root) {
  "use strict";
  const headsmith = (root.headsmith = root.headsmith || {});

  const same = (numbers) => numbers;

  // Formats: the numbers that are computed with, and how what is held is rounded, in place. Formats of 16 bits compute in
  // float32 and hold so many digits, down to a smallest exponent: see run/textbook.py for what is held.
  const FORMATS = {
    float64: { Numbers: Float64Array, hold: same },
    float32: { Numbers: Float32Array, hold: same },
    bfloat16: { Numbers: Float32Array, hold: (numbers) => rounded(numbers, 8, -126) },
    float16: { Numbers: Float32Array, hold: (numbers) => rounded(numbers, 11, -14) },
  };

  function rounded(numbers, digits, lowest) {
    for (let i = 0; i < numbers.length; i++) {
      const value = numbers[i];
      if (value === 0 || !Number.isFinite(value)) continue;
      const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), lowest) - digits + 1),
        below = Math.floor(value / unit),
        rest = value / unit - below;
      numbers[i] = unit * (rest > 0.5 || (rest === 0.5 && below % 2) ? below + 1 : below);
    }
    return numbers;
  }

  // The format that a model runs in on this page.
  const formatOf = (view) => (view.certificate.dtype in FORMATS ? view.certificate.dtype : "float64");

  // The entries of a matrix that are not zero, as [row, column, value] in typed arrays.
  function triples(matrix, { Numbers, hold }) {
    const [rows, columns] = matrix.shape,
      size = matrix.at.length;
    const found = { row: new Int32Array(size), column: new Int32Array(size), value: hold(Numbers.from(matrix.values)) };
    let used = 0;
    for (let i = 0; i < size; i++) {
      found.row[i] = Math.floor(matrix.at[i] / columns);
      found.column[i] = matrix.at[i] % columns;
      used = Math.max(used, found.column[i] + 1);
    }
    return Object.assign(found, { rows, columns, used });
  }

  // into[row0 + r] += from[r] @ matrix for `count` rows; `from` has rows of `wide` numbers, `into` of `width`.
  function multiply(from, wide, matrix, count, into, width, first = 0) {
    const { row, column, value } = matrix,
      size = value.length;
    for (let r = 0; r < count; r++) {
      const source = r * wide,
        target = (first + r) * width;
      for (let i = 0; i < size; i++) into[target + column[i]] += from[source + row[i]] * value[i];
    }
    return into;
  }

  function dense(matrix, Numbers = Float64Array) {
    const filled = new Numbers(matrix.shape[0] * matrix.shape[1]);
    matrix.at.forEach((place, i) => {
      filled[place] = matrix.values[i];
    });
    return filled;
  }

  function prepare(view) {
    const format = FORMATS[formatOf(view)],
      { Numbers, hold } = format,
      width = view.width,
      prefix = view.references.shape[0],
      references = hold(dense(view.references, Numbers));
    const layers = view.layers.map((heads) =>
      heads.map((head) => {
        const [Q, K, V, O] = ["W_Q", "W_K", "W_V", "W_O"].map((name) => triples(head[name], format));
        const features = Math.max(Q.used, K.used, 1),
          values = Math.max(V.used, 1);
        return {
          Q,
          K,
          V,
          O,
          features,
          values,
          kind: head.kind,
          exact: head.exact,
          keys: hold(multiply(references, width, K, prefix, new Numbers(prefix * features), features)),
          held: hold(multiply(references, width, V, prefix, new Numbers(prefix * values), values)),
        };
      }),
    );
    const neurons = view.neurons.map(
      (layer) => layer && [layer.W_gate, layer.W_up, layer.W_down].map((matrix) => triples(matrix, format)),
    );
    const last = view.last && view.last.map((matrix) => triples(matrix, format));
    return {
      Numbers,
      hold,
      view,
      width,
      prefix,
      references,
      layers,
      neurons,
      last,
      outputs: last ? view.last[2].shape[1] : view.b_U.length,
      embedding: triples(view.W_E, format),
      bias: hold(dense(view.b_E, Numbers)),
      positions: hold(dense(view.W_pos, Numbers)),
      bias_U: hold(Numbers.from(view.b_U)),
      readout: triples(view.W_U, format),
    };
  }

  // The rows of numbers that tokens get: one token a row; in blocks, the same inputs at every token, in its own block.
  function tokenRows({ view, Numbers, hold }, rows) {
    if (!view.blocks) return rows.map((row) => hold(Numbers.from(row)));
    const size = rows[0].length;
    return Array.from({ length: view.tokens }, (_, token) => {
      const laid = new Numbers(view.tokens * size);
      laid.set(rows[0], token * size);
      return hold(laid);
    });
  }

  function softmax(scores, first, count) {
    let largest = -Infinity,
      total = 0;
    for (let j = first; j < first + count; j++) if (scores[j] > largest) largest = scores[j];
    const round = scores instanceof Float32Array ? Math.fround : (value) => value;
    for (let j = first; j < first + count; j++) {
      scores[j] = Math.exp(round(scores[j] - largest));
      total = round(total + scores[j]);
    }
    for (let j = first; j < first + count; j++) scores[j] /= total;
  }

  // Sorted from the largest on, the first k scores keep weight, k the last with 1 + k s_k > s_1 + ... + s_k; they all
  // lose the same, so that the sum is one.
  function sparsemax(scores, first, count) {
    const row = Array.from(scores.subarray(first, first + count)),
      largest = Math.max(...row),
      sorted = row.map((score) => Math.max(score - largest, -2)).sort((a, b) => b - a);
    let sum = 0,
      lost = 0;
    sorted.forEach((score, k) => {
      sum += score;
      if (1 + (k + 1) * score > sum) lost = (sum - 1) / (k + 1);
    });
    for (let j = first; j < first + count; j++) scores[j] = Math.max(scores[j] - largest - lost, 0);
  }

  function hardmax(scores, first, count) {
    const row = scores.subarray(first, first + count),
      largest = row.reduce((most, score) => Math.max(most, score), -Infinity),
      equals = row.reduce((sum, score) => sum + (score === largest ? 1 : 0), 0);
    for (let j = 0; j < count; j++) row[j] = row[j] === largest ? 1 / equals : 0;
  }

  function divided(scores, first, count) {
    let total = 0;
    for (let j = first; j < first + count; j++) total += scores[j];
    for (let j = first; j < first + count; j++) scores[j] /= total;
  }

  const each = (formula) => (scores, first, count) => {
    for (let j = first; j < first + count; j++) scores[j] = formula(scores[j]);
  };

  // How the scores of one query become its weights, in place.
  const WEIGH = {
    softmax,
    hardmax,
    sparsemax,
    sigmoid: each((score) => 1 / (1 + Math.exp(-score))),
    relu: each((score) => Math.max(score, 0)),
    linear: each((score) => score),
    "elu+1": divided,
  };

  // phi of elu+1, feature by feature: its scores are phi(query) . phi(key).
  const positive = (features) => features.map((value) => (value > 0 ? value + 1 : Math.exp(value)));

  // Runs the model on a sequence of rows of inputs. `off` and `exact` are sets of "layer.head": heads that return
  // nothing, and heads that return what they stand for. The result has all intermediates of data tokens.
  function run(model, rows, { off = null, exact = null, references = false } = {}) {
    const { Numbers, hold, width, prefix } = model,
      laid = tokenRows(model, rows),
      count = laid.length;
    const shift = references ? prefix : 0,
      active = shift + count,
      total = prefix + count;
    let stream = new Numbers(active * width);
    if (references) stream.set(model.references);
    for (let t = 0; t < count; t++) {
      const start = (shift + t) * width;
      for (let c = 0; c < width; c++) stream[start + c] = model.bias[c] + model.positions[t * width + c];
    }
    for (let t = 0; t < count; t++) multiply(laid[t], 0, model.embedding, 1, stream, width, shift + t);
    const streams = [hold(stream)],
      layers = [];
    model.layers.forEach((heads, l) => {
      // What heads add is held before it is added; where nothing is rounded for that, it is added at once.
      const added = hold === same ? null : new Numbers(stream.length),
        next = stream.slice(),
        found = [];
      heads.forEach((head, h) => {
        const name = `${l}.${h}`;
        const attention = attend(model, head, stream, { count, shift, active, total });
        if (exact && exact.has(name)) attention.output = exactOutput(model, head, stream, attention, { count, shift });
        if (!(off && off.has(name))) multiply(attention.output, head.values, head.O, active, added || next, width);
        found.push(attention);
      });
      if (model.neurons[l]) activate(model, model.neurons[l], stream, active, next);
      if (added) hold(added).forEach((value, i) => (next[i] += value));
      hold(next);
      layers.push(found);
      streams.push((stream = next));
    });
    const data = shift ? stream.subarray(shift * width) : stream;
    return { count, prefix, shift, total, streams, layers, output: readOut(model, data, count) };
  }

  // A layer of neurons: adds what they return to the stream.
  function activate({ Numbers, width }, [gate, up, down], stream, active, next) {
    const size = down.rows,
      gates = multiply(stream, width, gate, active, new Numbers(active * size), size),
      returned = multiply(stream, width, up, active, new Numbers(active * size), size),
      round = Numbers === Float32Array ? Math.fround : (value) => value;
    for (let i = 0; i < returned.length; i++)
      returned[i] *= round(gates[i] / round(1 + round(Math.exp(-gates[i]))));
    multiply(returned, size, down, active, next, width);
  }

  // One head: scores and weights [query, key], values [token], output [query], over reference tokens, then data tokens.
  function attend(model, head, stream, { count, shift, active, total }) {
    const { Numbers, hold, width, prefix } = model,
      { features, values } = head,
      causal = model.view.causal;
    const queries = hold(multiply(stream, width, head.Q, active, new Numbers(active * features), features));
    const keys = new Numbers(total * features),
      held = new Numbers(total * values);
    if (!shift) {
      keys.set(head.keys);
      held.set(head.held);
    }
    multiply(stream, width, head.K, active, keys, features, prefix - shift);
    multiply(stream, width, head.V, active, held, values, prefix - shift);
    hold(keys);
    hold(held);
    const kind = model.view.attention || "softmax",
      asked = kind === "elu+1" ? positive(queries) : queries,
      offered = kind === "elu+1" ? positive(keys) : keys;
    const scores = new Numbers(active * total),
      output = new Numbers(active * values);
    // Reference tokens of other attentions see no data token: nothing keeps these from them.
    const inSight = (i) => (causal || (kind !== "softmax" && i < shift) ? prefix + i - shift + 1 : total);
    for (let i = 0; i < active; i++) {
      const seen = inSight(i);
      for (let j = 0; j < total; j++) {
        const place = i * total + j;
        if (j >= seen) scores[place] = -Infinity;
        else for (let f = 0; f < features; f++) scores[place] += asked[i * features + f] * offered[j * features + f];
      }
    }
    const weights = scores.slice();
    for (let i = 0; i < active; i++) {
      const seen = inSight(i);
      WEIGH[kind](weights, i * total, seen);
      weights.fill(0, i * total + seen, (i + 1) * total);
      for (let j = 0; j < total; j++) {
        const weight = weights[i * total + j];
        if (weight !== 0) for (let v = 0; v < values; v++) output[i * values + v] += weight * held[j * values + v];
      }
    }
    return { scores, weights, held, output: hold(output), queries, values, features };
  }

  // Whether `exactOutput` knows more of a head than it computes itself. Moves, means, gates of relu attention and products are exact
  // as they are.
  function softened({ attention = "softmax" }, head) {
    if (attention === "softmax") return EXACT.has(head.kind);
    const soft = attention === "sparsemax" ? ["sink", "boltzmann"] : ["sigmoid", "elu+1"].includes(attention) ? ["sink"] : [];
    return soft.includes(head.kind);
  }

  const EXACT = new Set(["sink", "gate", "table", "mean", "boltzmann", "move", "attend"]);

  // What a head stands for, from what it reads: the gate, function, product, maximum or mean without any softness.
  function exactOutput(model, head, stream, attention, { count, shift }) {
    const { prefix } = model,
      { values, features } = head,
      { held, queries, weights } = attention,
      total = prefix + count;
    const output = attention.output.slice(),
      causal = model.view.causal;
    if (!softened(model.view, head)) return output;
    for (let t = 0; t < count; t++) {
      const i = shift + t,
        seen = causal ? t + 1 : count;
      const own = (v, token = t) => held[(prefix + token) * values + v];
      for (let v = 0; v < values; v++) {
        const place = i * values + v,
          among = Array.from({ length: seen }, (_, token) => own(v, token));
        switch (head.kind) {
          case "sink":
            output[place] = Math.max(own(v), 0);
            break;
          case "gate":
            output[place] = headsmith.runProgram(head.exact[v], [queries[i * features], own(v)]);
            break;
          case "table": {
            const program = head.exact[v],
              given = Array.from({ length: program.variables }, (_, a) => queries[i * features + a]);
            output[place] = headsmith.runProgram(program, given);
            break;
          }
          case "mean":
            output[place] = among.reduce((sum, value) => sum + value, 0) / seen;
            break;
          case "boltzmann": {
            // Scores rise with the value for a maximum, and fall for a minimum: the sharpest look says which.
            const row = Array.from(weights.subarray(i * total + prefix, i * total + prefix + seen));
            const largest = Math.max(...among),
              smallest = Math.min(...among),
              looked = among[row.indexOf(Math.max(...row))];
            output[place] = Math.abs(looked - largest) <= Math.abs(looked - smallest) ? largest : smallest;
            break;
          }
          case "move": {
            const row = weights.subarray(i * total, (i + 1) * total),
              best = row.indexOf(Math.max(...row));
            output[place] = best < prefix ? 0 : own(v, best - prefix);
            break;
          }
          case "attend": {
            let sum = 0,
              all = 0;
            for (let token = 0; token < seen; token++) {
              sum += weights[i * total + prefix + token] * own(v, token);
              all += weights[i * total + prefix + token];
            }
            output[place] = sum / all;
            break;
          }
        }
      }
    }
    return output;
  }

  // The outputs of the data tokens: rows of numbers.
  function readOut(model, stream, count) {
    const { Numbers, hold, width, outputs, last } = model;
    if (!last) {
      const found = hold(multiply(stream, width, model.readout, count, new Numbers(count * outputs), outputs));
      return Array.from({ length: count }, (_, t) =>
        Array.from(hold(found.subarray(t * outputs, (t + 1) * outputs).map((value, o) => value + model.bias_U[o]))),
      );
    }
    const [W, b, V] = last,
      size = W.columns;
    return Array.from({ length: count }, (_, t) => {
      const scores = new Numbers(size);
      for (let i = 0; i < b.value.length; i++) scores[b.column[i]] = b.value[i];
      multiply(stream.subarray(t * width, (t + 1) * width), width, W, 1, scores, size);
      softmax(scores, 0, size);
      return Array.from(hold(multiply(scores, size, V, 1, new Numbers(outputs), outputs)));
    });
  }

  // The rows that people read: in blocks every token returns the same outputs, and the first is shown.
  function outputs(model, trace) {
    return model.view.blocks ? [trace.output[0]] : trace.output;
  }

  // Which numbers of the input lie outside the domain.
  function outside(view, rows) {
    const found = [];
    rows.forEach((row, token) =>
      row.forEach((value, input) => {
        if (!(value >= view.low[input] && value <= view.high[input])) {
          found.push({ token, input, name: view.names[input], value, low: view.low[input], high: view.high[input] });
        }
      }),
    );
    return found;
  }

  Object.assign(headsmith, { prepare, run, outputs, outside, dense, formatOf, softened });
})(globalThis);
