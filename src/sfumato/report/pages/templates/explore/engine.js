// Answers questions about a released model as `sfumato sql --model` does, without a server.
// A question is {keys: [field], filters: [[field, [label]]], kind: count|sum|average|share, field, label},
// fields and labels by their numbers. Every weight of a cell is a product over columns, so that sums over cells
// become sums over columns one after the other: of the model's cliques, and of residuals of the noisy counts.

const product = numbers => numbers.reduce((so, far) => so * far, 1);

// Of any number of numbers, where Math.min takes no more than fit on its stack.
const least = numbers => numbers.reduce((so, far) => Math.min(so, far), Infinity);
const most = numbers => -least(numbers.map(each => -each));

function* subsets(columns) {
  for (let mask = 0; mask < 2 ** columns.length; mask++) yield columns.filter((_, at) => mask >> at & 1);
}

// A tensor has columns, their sizes and values, the last column running fastest.
function contract(tensor, column, weights) {
  const at = tensor.columns.indexOf(column), size = tensor.sizes[at];
  const inner = product(tensor.sizes.slice(at + 1)), outer = product(tensor.sizes.slice(0, at));
  const values = new Float64Array(outer * inner);
  for (let one = 0; one < outer; one++)
    for (let code = 0; code < size; code++) {
      const weight = weights ? weights[code] : 1, from = (one * size + code) * inner, to = one * inner;
      if (weight !== 0) for (let two = 0; two < inner; two++) values[to + two] += weight * tensor.values[from + two];
    }
  const drop = list => list.filter((_, place) => place !== at);
  return {columns: drop(tensor.columns), sizes: drop(tensor.sizes), values};
}

const project = (tensor, kept) =>
  tensor.columns.filter(name => !kept.includes(name)).reduce((left, name) => contract(left, name), tensor);

// For every cell of a shape, the place in a tensor over some of its columns.
function* walk(columns, sizes, tensors) {
  const steps = tensors.map(tensor => columns.map(name => {
    const at = tensor.columns.indexOf(name);
    return at < 0 ? 0 : product(tensor.sizes.slice(at + 1));
  }));
  const codes = columns.map(() => 0), places = tensors.map(() => 0);
  for (let cell = 0, cells = product(sizes); cell < cells; cell++) {
    yield places;
    for (let at = columns.length - 1; at >= 0; at--) {
      codes[at]++;
      for (const turn in tensors) places[turn] += steps[turn][at];
      if (codes[at] < sizes[at]) break;
      for (const turn in tensors) places[turn] -= steps[turn][at] * sizes[at];
      codes[at] = 0;
    }
  }
}

function join(one, other, divided) {
  const columns = [...one.columns, ...other.columns.filter(name => !one.columns.includes(name))];
  const sizes = columns.map(name => [one, other].flatMap(each => each.columns.includes(name) ? [each.sizes[each.columns.indexOf(name)]] : [])[0]);
  const values = new Float64Array(product(sizes));
  let cell = 0;
  for (const [first, second] of walk(columns, sizes, [one, other])) {
    const factor = other.values[second];
    values[cell++] = divided ? (factor > 0 ? one.values[first] / factor : 0) : one.values[first] * factor;
  }
  return {columns, sizes, values};
}

class Model {
  constructor(about, tables) {
    Object.assign(this, about);
    this.tables = this.cliques.map((clique, at) => ({columns: clique, sizes: clique.map(name => about.sizes[name]), values: tables[at]}));
    this.near = this.cliques.map((_, at) => [
      ...(this.parents[at] >= 0 ? [[this.parents[at], this.separators[at]]] : []),
      ...this.parents.flatMap((parent, child) => parent === at ? [[child, this.separators[child]]] : []),
    ]);
  }

  // Expected counts of the cells of `free`, each cell weighted by `weights` of the other columns.
  expect(free, weights) {
    const asked = [...free, ...Object.keys(weights).map(Number)];
    if (!asked.length) return {columns: [], sizes: [], values: [this.total]};
    const held = this.cliques.map(clique => asked.filter(name => clique.includes(name)).length);
    const root = held.indexOf(most(held));
    const found = this.collect(root, -1, [], free, weights);
    return this.reorder(found, free);
  }

  reorder(tensor, columns) {
    const sizes = columns.map(name => this.sizes[name]), values = new Float64Array(product(sizes));
    let cell = 0;
    for (const [place] of walk(columns, sizes, [tensor])) values[cell++] = tensor.values[place];
    return {columns, sizes, values};
  }

  // Whether the cliques from here on, away from `from`, hold an asked column that is not `known` already.
  speaks(place, from, known, asked) {
    if (this.cliques[place].some(name => asked.includes(name) && !known.includes(name))) return true;
    return this.near[place].some(([other]) => other !== from && this.speaks(other, place, known, asked));
  }

  collect(place, from, separator, free, weights) {
    const asked = [...free, ...Object.keys(weights).map(Number)], clique = this.cliques[place];
    const turns = this.near[place].filter(([other]) => other !== from && this.speaks(other, place, clique, asked));
    const kept = clique.filter(name => separator.includes(name) || free.includes(name));
    const shared = turns.flatMap(([, names]) => names), own = Object.keys(weights).map(Number).filter(name => clique.includes(name) && !separator.includes(name));
    let tensor = project(this.tables[place], [...kept, ...shared, ...own]);
    if (from >= 0) tensor = join(tensor, project(tensor, separator), true);
    for (const name of own) if (!shared.includes(name)) tensor = contract(tensor, name, weights[name]);
      else tensor = join(tensor, {columns: [name], sizes: [this.sizes[name]], values: weights[name]});
    turns.forEach(([other, names], turn) => {
      tensor = join(tensor, this.collect(other, place, names, free, weights));
      const later = turns.slice(turn + 1).flatMap(([, each]) => each);
      tensor = project(tensor, [...kept, ...later, ...tensor.columns.filter(name => !clique.includes(name))]);
    });
    return tensor;
  }
}

// What noisy counts say by themselves: see src/sfumato/inference/evidence.py.
class Source {
  constructor(about, arrays) {
    Object.assign(this, about);
    this.counts = about.counts.map((each, at) => ({...each, sizes: each.columns.map(name => about.sizes[name]), values: arrays[at]}));
    this.known = new Map();
  }

  residual(columns) {
    const key = columns.join();
    if (!this.known.has(key)) this.known.set(key, this.find(columns));
    return this.known.get(key);
  }

  find(columns) {
    const sizes = columns.map(name => this.sizes[name]), cells = product(sizes);
    let precision = 0, uneven = null, values = new Float64Array(cells);
    for (const each of this.counts) {
      if (!each.along.every(name => columns.includes(name)) || !columns.every(name => each.columns.includes(name))) continue;
      const left = project(each, columns), summed = new Float64Array(cells);
      let cell = 0;
      for (const [place] of walk(columns, sizes, [left])) summed[cell++] = left.values[place];
      if (each.added) {
        if (columns.length) uneven = [summed, each.added.map(times => times * each.variance)];
        continue;
      }
      const share = 1 / (each.variance * product(each.sizes) / cells);
      summed.forEach((value, at) => { values[at] += value * share; });
      precision += share;
    }
    if (!precision && !uneven) return null;
    if (precision) values = values.map(value => value / precision);
    let variance = precision ? 1 / precision : 0, more = null;
    if (uneven) {
      const [summed, variances] = uneven, mean = variances.reduce((so, far) => so + far, 0) / cells;
      const share = 1 / (1 + precision * mean);
      values = values.map((value, at) => (1 - share) * value + share * summed[at]);
      variance = precision ? (1 - share) ** 2 / precision : 0;
      more = variances.map(each => share ** 2 * each);
    }
    let tensor = {columns, sizes, values};
    for (const name of columns) {
      const mean = contract(tensor, name), size = this.sizes[name];
      let cell = 0;
      for (const [place, above] of walk(columns, sizes, [tensor, mean])) values[cell++] = tensor.values[place] - mean.values[above] / size;
      tensor = {columns, sizes, values: values.slice()};
    }
    return {...tensor, variance, more};
  }

  // The covariance of two sums whose weights are products of `one` and `other`, by column.
  covariance(columns, one, other) {
    const facts = new Map(columns.map(name => {
      const size = this.sizes[name];
      let first = 0, second = 0, both = 0;
      one[name].forEach((weight, code) => { first += weight; second += other[name][code]; both += weight * other[name][code]; });
      return [name, {size, first, second, both, centred: both - first * second / size}];
    }));
    let result = 0;
    for (const part of subsets(columns)) {
      const rest = product(columns.filter(name => !part.includes(name)).map(name => facts.get(name).first * facts.get(name).second));
      const divided = product(columns.filter(name => !part.includes(name)).map(name => facts.get(name).size)) ** 2;
      const centred = product(part.map(name => facts.get(name).centred)) * rest;
      const residual = this.residual(part);
      if (!residual) {
        if (Math.abs(centred) > 1e-9 * Math.abs(product(part.map(name => facts.get(name).both)) * rest)) return NaN;
        continue;
      }
      result += residual.variance * centred / divided;
      if (residual.more) {
        const {size, first, second} = facts.get(part[0]);
        residual.more.forEach((scale, code) => {
          result += scale * (one[part[0]][code] - first / size) * (other[part[0]][code] - second / size) * rest / divided;
        });
      }
    }
    return result;
  }

  // Estimates of sums over cells, one for each of `groups`, which have weights of the columns `keys`.
  estimate(columns, keys, common, groups) {
    const totals = groups.map(() => 0);
    for (const part of subsets(columns)) {
      let tensor = this.residual(part);
      if (!tensor) continue;
      const mean = name => common[name].reduce((so, far) => so + far, 0) / this.sizes[name];
      const rest = product(columns.filter(name => !part.includes(name) && !keys.includes(name)).map(mean));
      for (const name of part) if (!keys.includes(name)) tensor = contract(tensor, name, common[name]);
      const means = keys.filter(name => !part.includes(name));
      groups.forEach((group, at) => {
        const outside = product(means.map(name => group[name].reduce((so, far) => so + far, 0) / this.sizes[name]));
        totals[at] += rest * outside * pick(tensor, group);
      });
    }
    return totals;
  }

  deviation(columns) {
    const cell = Object.fromEntries(columns.map(name => [name, Array.from({length: this.sizes[name]}, (_, code) => code ? 0 : 1)]));
    return Math.sqrt(Math.max(this.covariance(columns, cell, cell), 0));
  }
}

// The sum of a tensor whose every column has few codes with a weight.
function pick(tensor, weights) {
  let places = [[0, 1]];
  tensor.columns.forEach((name, at) => {
    const step = product(tensor.sizes.slice(at + 1)), chosen = [];
    weights[name].forEach((weight, code) => { if (weight) chosen.push([code * step, weight]); });
    places = places.flatMap(([place, so]) => chosen.map(([more, weight]) => [place + more, so * weight]));
  });
  return places.reduce((so, [place, weight]) => so + tensor.values[place] * weight, 0);
}

function interpolate(value, places, heights) {
  if (value <= places[0]) return heights[0];
  const at = places.findIndex(place => place >= value);
  if (at < 0) return heights[heights.length - 1];
  return heights[at - 1] + (heights[at] - heights[at - 1]) * (value - places[at - 1]) / (places[at] - places[at - 1]);
}

class Explorer {
  constructor(about, numbers) {
    Object.assign(this, about);
    let read = 0;
    const take = sizes => numbers.subarray(read, read += product(sizes));
    this.model = new Model(about.model, about.model.cliques.map(clique => take(clique.map(name => about.model.sizes[name]))));
    this.wholes = about.wholes.map(each => new Source(each, each.counts.map(one => take(one.columns.map(name => each.sizes[name])))));
    this.joined = about.joined && new Source(about.joined, about.joined.counts.map(one => take(one.columns.map(name => about.joined.sizes[name]))));
    this.fields.forEach(field => { field.distinct = [...new Set(field.labels)]; });
  }

  findSources(columns) {
    const exact = number => Number.isNaN(number) ? Infinity : number;
    const found = this.wholes.map(source => [exact(source.deviation(columns)), source]).sort((one, two) => one[0] === two[0] ? 0 : one[0] - two[0]).map(each => each[1]);
    const joined = this.joined;
    if (joined && columns.some(name => joined.maps[name])) return [...found.slice(0, 1), joined];
    return joined && joined.contrasts ? [joined] : found.slice(0, 1);
  }

  // The rows of the answer: {labels, value, low, high}; ends are null where nothing measured tells them.
  ask(question) {
    const {keys, filters, kind} = question, field = kind === 'count' ? null : this.fields[question.field];
    const used = [...keys, ...filters.map(each => each[0]), ...(field ? [question.field] : [])];
    const columns = [...new Set(used.map(at => this.fields[at].column))].sort((one, two) => one - two);
    const free = columns.filter(name => keys.some(at => this.fields[at].column === name));
    const size = name => this.model.sizes[name];
    const kept = Object.fromEntries(columns.map(name => [name, new Array(size(name)).fill(1)]));
    for (const [at, labels] of filters) {
      const {column, labels: all, distinct} = this.fields[at], names = new Set(labels.map(label => distinct[label]));
      all.forEach((label, code) => { if (!names.has(label)) kept[column][code] = 0; });
    }
    let groups = [{labels: [], masks: Object.fromEntries(free.map(name => [name, kept[name]]))}];
    for (const at of keys) {
      const {column, labels, distinct} = this.fields[at];
      groups = groups.flatMap(group => distinct.flatMap((name, label) => {
        const mask = group.masks[column].map((weight, code) => labels[code] === name ? weight : 0);
        return mask.some(Boolean) ? [{labels: [...group.labels, label], masks: {...group.masks, [column]: mask}}] : [];
      }));
    }
    if (columns.some(name => !kept[name].some(Boolean))) groups = [];
    let lows = null, highs = null;
    if (kind === 'share') {
      const name = field.distinct[question.label];
      lows = highs = field.labels.map(label => label === name ? 1 : 0);
    } else if (field) [lows, highs] = [0, 1].map(end => field.ends.map(pair => pair[end]));
    const middle = lows && lows.map((low, code) => (low + highs[code]) / 2);
    const counts = this.sum(groups, free, kept, null, null);
    const totals = middle ? this.sum(groups, free, kept, field.column, middle) : counts;
    const values = totals.map((total, at) => kind === 'count' || kind === 'sum' ? total : counts[at] > 0 ? total / counts[at] : NaN);
    let ends = groups.map(() => [NaN, NaN]);
    for (const source of this.findSources(columns)) {
      if (!ends.some(pair => Number.isNaN(pair[0]))) break;
      const found = this.enclose(source, {groups, columns, free, kept, kind, column: field && field.column, lows, highs});
      ends = ends.map((pair, at) => Number.isNaN(pair[0]) ? found[at] : pair);
    }
    const average = kind === 'average' || kind === 'share';
    const [bottom, top] = kind === 'share' ? [0, 1] : average ? [least(lows), most(highs)] : [0, 0];
    return groups.map((group, at) => {
      let [low, high] = ends[at];
      const value = values[at], known = !Number.isNaN(low);
      if (average && known) [low, high] = [Math.max(low, bottom), Math.min(high, top)];
      if (known && !Number.isNaN(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
      const shown = number => Number.isNaN(number) ? null : number;
      return {labels: group.labels, value: shown(value), low: shown(low), high: shown(high)};
    });
  }

  sum(groups, free, kept, column, weights) {
    const times = (mask, name) => name === column ? mask.map((keep, code) => keep * weights[code]) : mask;
    const common = Object.fromEntries(Object.keys(kept).map(Number).filter(name => !free.includes(name)).map(name => [name, times(kept[name], name)]));
    const tensor = this.model.expect(free, common);
    return groups.map(group => pick(tensor, Object.fromEntries(free.map(name => [name, times(group.masks[name], name)]))));
  }

  // The ends of every group's interval, as far as one source knows them.
  enclose(source, {groups, columns, free, kept, kind, column, lows, highs}) {
    const fold = (mask, name) => {
      const map = source.maps[name];
      if (!map) return {mask, whole: true};
      const joined = new Array(source.sizes[name]).fill(0);
      mask.forEach((keep, code) => { if (keep) joined[map[code]] = 1; });
      return {mask: joined, whole: mask.every((keep, code) => !keep === !joined[map[code]])};
    };
    const gather = (weights, choose, start) => {
      const map = source.maps[column];
      if (!map) return weights;
      const joined = new Array(source.sizes[column]).fill(start);
      weights.forEach((weight, code) => { joined[map[code]] = choose(joined[map[code]], weight); });
      return joined;
    };
    const folded = groups.map(group => Object.fromEntries(columns.map(name => [name, fold(group.masks[name] || kept[name], name)])));
    const broken = folded.map(group => columns.some(name => !group[name].whole));
    const masks = folded.map(group => Object.fromEntries(columns.map(name => [name, group[name].mask])));
    const weigh = weights => masks.map(mask => weights === null ? mask : {...mask, [column]: mask[column].map((keep, code) => keep ? weights[code] : 0)});
    const values = weighted => source.estimate(columns, free, weighted[0], weighted);
    const spread = (one, other) => one.map((group, at) => source.covariance(columns, group, other[at]));
    const inside = (mask, weights) => weights.filter((_, code) => mask[column][code]);
    const low = lows && gather(lows, Math.min, Infinity), high = highs && gather(highs, Math.max, -Infinity);
    const half = source.step / 2;
    if (!groups.length) return [];
    let ends;
    if (kind === 'average' || kind === 'share') {
      const bottoms = masks.map(mask => least(inside(mask, low))), tops = masks.map(mask => most(inside(mask, high)));
      const centre = (least(bottoms) + most(tops)) / 2;
      const edge = (weights, bottom, top) => {
        const ones = weigh(null), some = weigh(weights), count = values(ones), total = values(some);
        const [squares, crossed, counts] = [spread(some, some), spread(some, ones), spread(ones, ones)];
        return masks.map((_, at) => {
          if (Number.isNaN(squares[at] + counts[at])) return NaN;
          const above = ratio => total[at] - ratio * count[at] > source.width * Math.sqrt(Math.max(squares[at] - 2 * ratio * crossed[at] + ratio ** 2 * counts[at], 0)) + half * (top[at] - bottom[at]);
          if (!above(bottom[at])) return bottom[at];
          let kept = top[at], refused = bottom[at];
          for (let step = 0; step < 60; step++) {
            const middle = (kept + refused) / 2;
            if (above(middle)) refused = middle; else kept = middle;
          }
          return refused;
        });
      };
      const below = bottoms.map(each => each - centre), over = tops.map(each => each - centre);
      const first = edge(low.map(each => each - centre), below, over);
      const last = edge(high.map(each => centre - each), over.map(each => -each), below.map(each => -each));
      ends = masks.map((_, at) => [centre + first[at], centre - last[at]]);
    } else if (kind === 'count' && source.normal) {
      const ones = weigh(null), count = values(ones), deviations = spread(ones, ones).map(each => Math.sqrt(Math.max(each, 0)));
      ends = masks.map((_, at) => {
        const deviation = deviations[at], scaled = deviation > 0 ? count[at] / deviation : 0, {centres, firsts, lasts, width} = this.acceptance;
        const bottom = scaled >= lasts[lasts.length - 1] ? scaled - width : interpolate(scaled, lasts, centres);
        const top = scaled >= 0 ? scaled + width : interpolate(scaled, firsts, centres.slice(1));
        return [Math.max(bottom * deviation - half, 0), top * deviation + half];
      });
    } else {
      const [bottom, top] = [low, high].map((weights, turn) => {
        const some = weigh(weights), total = values(some), squares = spread(some, some);
        return masks.map((mask, at) => {
          const largest = weights ? most(inside(mask, weights).map(Math.abs)) : 1;
          return total[at] + (turn ? 1 : -1) * (source.width * Math.sqrt(Math.max(squares[at], 0)) + largest * half);
        });
      });
      ends = masks.map((_, at) => [kind === 'count' ? Math.max(bottom[at], 0) : bottom[at], top[at]]);
    }
    return ends.map((pair, at) => broken[at] || pair.some(Number.isNaN) ? [NaN, NaN] : pair);
  }

  // The same question for `sfumato sql --model`.
  sql({keys, filters, kind, field, label}) {
    const name = at => /^[A-Za-z_]\w*$/.test(this.fields[at].name) ? this.fields[at].name : '"' + this.fields[at].name.replaceAll('"', '""') + '"';
    const literal = (at, one) => {
      const value = this.fields[at].distinct[one];
      return typeof value === 'number' && this.fields[at].ends ? String(value) : "'" + String(value).replaceAll("'", "''") + "'";
    };
    const asked = {
      count: () => 'COUNT(*)', sum: () => `SUM(${name(field)})`, average: () => `AVG(${name(field)})`,
      share: () => `AVG(CASE WHEN ${name(field)} = ${literal(field, label)} THEN 1 ELSE 0 END)`,
    }[kind]();
    const where = filters.map(([at, labels]) => `${name(at)} IN (${labels.map(one => literal(at, one)).join(', ')})`).join(' AND ');
    const listed = keys.map(name).join(', ');
    return `SELECT ${listed ? listed + ', ' : ''}${asked} AS answer FROM ${this.table}${where ? ' WHERE ' + where : ''}${listed ? ' GROUP BY ' + listed : ''}`;
  }
}

// The numbers are 64-bit ones, parted by byte and packed with gzip.
async function unpack(text) {
  const packed = Uint8Array.from(atob(text.trim()), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const parted = new Uint8Array(await new Response(stream).arrayBuffer()), count = parted.length / 8;
  const bytes = new Uint8Array(parted.length);
  for (let turn = 0; turn < 8; turn++) for (let at = 0; at < count; at++) bytes[8 * at + turn] = parted[turn * count + at];
  return new Float64Array(bytes.buffer);
}
