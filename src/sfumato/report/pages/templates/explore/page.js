const MOST_GROUPS = 4000, MOST_SHOWN = 60, MOST_SHEETS = 24;
const find = id => document.getElementById(id);
const make = (name, words, cls) => Object.assign(document.createElement(name), {textContent: words ?? '', className: cls ?? ''});

function listOptions(select, options, chosen) {
  select.replaceChildren(...options.map(([value, words]) => Object.assign(document.createElement('option'), {value, textContent: words})));
  select.value = chosen ?? options[0][0];
}

function show(value, kind) {
  if (value === null) return 'unknown';
  if (kind === 'share') return (100 * value).toFixed(1) + ' %';
  if (kind === 'count' || Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en');
  return Number(value.toPrecision(3)).toLocaleString('en', {maximumSignificantDigits: 3});
}

const span = (row, kind) => row.low === null ? 'no interval' : `${show(row.low, kind)} to ${show(row.high, kind)}`;

function readQuestion(explorer) {
  const [kind, field, label] = find('measure').value.split(' ');
  const keys = [...new Set(['first', 'second'].map(id => find(id).value).filter(Boolean).map(Number))];
  const filters = [...document.querySelectorAll('#filters fieldset')].flatMap(box => {
    const labels = [...box.querySelectorAll('input:checked')].map(each => Number(each.value));
    return labels.length && labels.length < explorer.fields[box.dataset.field].distinct.length ? [[Number(box.dataset.field), labels]] : [];
  });
  return {keys, filters, kind, ...(kind === 'count' ? {} : {field: Number(field)}), ...(kind === 'share' ? {label: Number(label)} : {})};
}

// One sentence that says what stands out, and what cannot be told from it.
function tell(explorer, question, rows) {
  const {kind, keys} = question, name = row => row.labels.map((label, at) => {
    const {name: column, distinct} = explorer.fields[keys[at]];
    return keys.length > 1 || typeof distinct[label] === 'number' ? `${column} ${distinct[label]}` : distinct[label];
  }).join(', ');
  const what = kind === 'count' ? 'records' : find('measure').selectedOptions[0].textContent;
  const known = rows.filter(row => row.value !== null);
  if (!known.length) return 'Nothing is left of the records with these choices.';
  if (!keys.length) return `${show(known[0].value, kind)}${kind === 'count' ? ' records' : ', ' + what} (${span(known[0], kind)}).`;
  const top = known.reduce((best, row) => row.value > best.value ? row : best);
  const alike = known.filter(row => row !== top && row.high !== null && top.low !== null && row.high >= top.low);
  const said = `${kind === 'count' ? 'Most records' : 'Highest ' + what}: ${name(top)}, ${show(top.value, kind)} (${span(top, kind)}).`;
  if (top.low === null || known.length < 2) return said;
  const unsure = known.some(row => row !== top && row.high === null);
  if (!alike.length) return said + ` It stands above all others${unsure ? ' that have an interval' : ''}.`;
  const first = alike.sort((one, two) => two.value - one.value).slice(0, 3).map(name).join('; ');
  return `${said} It cannot be told apart from ${first}${alike.length > 3 ? ` and ${alike.length - 3} more` : ''}.`;
}

function drawSheet(explorer, question, rows, heading, limits) {
  const {kind, keys} = question, sheet = make('div', '', 'sheet'), at = value => 100 * (Math.min(Math.max(value, limits[0]), limits[1]) - limits[0]) / (limits[1] - limits[0] || 1);
  if (heading !== null) sheet.append(make('h3', heading));
  const field = keys.length ? explorer.fields[keys[0]] : null;
  const order = field && !field.ordered ? [...rows].sort((one, two) => (two.value ?? -Infinity) - (one.value ?? -Infinity)) : rows;
  for (const row of order.slice(0, MOST_SHOWN)) {
    const line = make('div', '', row.low === null ? 'row unknown' : 'row'), track = make('div', '', 'track'), bar = make('span', '', 'bar');
    const zero = at(0), place = row.value === null ? zero : at(row.value);
    bar.style.cssText = `position:absolute;left:${Math.min(zero, place)}%;width:${Math.abs(place - zero)}%`;
    track.append(bar);
    if (row.low !== null) {
      const reach = make('span', '', 'reach');
      reach.style.cssText = `left:${at(row.low)}%;width:${at(row.high) - at(row.low)}%`;
      track.append(reach);
    }
    line.title = `${show(row.value, kind)} (${span(row, kind)})`;
    line.append(make('span', field ? String(field.distinct[row.labels[0]]) : 'all', 'name'), track, make('span', show(row.value, kind), 'value'));
    sheet.append(line);
  }
  if (rows.length > MOST_SHOWN) sheet.append(make('p', `and ${rows.length - MOST_SHOWN} more, in the table below`, 'note'));
  return sheet;
}

function drawTable(explorer, question, rows) {
  const table = make('table'), head = table.createTHead().insertRow(), body = table.createTBody();
  const names = [...question.keys.map(at => explorer.fields[at].name), find('measure').selectedOptions[0].textContent, 'from', 'to (95 %)'];
  names.forEach((name, at) => head.append(make('th', name, at < question.keys.length ? '' : 'num')));
  for (const row of rows) {
    const line = body.insertRow();
    question.keys.forEach((at, place) => line.append(make('td', explorer.fields[at].distinct[row.labels[place]])));
    for (const value of [row.value, row.low, row.high]) line.append(make('td', show(value, question.kind), 'num'));
  }
  return table;
}

function save(explorer, question, rows) {
  const quote = text => /[",\n]/.test(text) ? '"' + String(text).replaceAll('"', '""') + '"' : String(text);
  const lines = [[...question.keys.map(at => explorer.fields[at].name), 'value', 'low', 'high'],
    ...rows.map(row => [...row.labels.map((label, at) => explorer.fields[question.keys[at]].distinct[label]), row.value ?? '', row.low ?? '', row.high ?? ''])];
  const link = make('a');
  link.href = URL.createObjectURL(new Blob([lines.map(line => line.map(quote).join(',')).join('\r\n') + '\r\n'], {type: 'text/csv'}));
  link.download = `${explorer.table}.csv`;
  link.click();
}

function answer(explorer) {
  const question = readQuestion(explorer), {keys, kind} = question, box = find('answer');
  const groups = keys.reduce((so, at) => so * explorer.fields[at].distinct.length, 1);
  if (groups > MOST_GROUPS) {
    box.replaceChildren(make('p', `These columns have ${groups.toLocaleString('en')} combinations, more than ${MOST_GROUPS.toLocaleString('en')}; choose fewer.`, 'warn'));
    return;
  }
  const rows = explorer.ask(question), parts = [make('p', tell(explorer, question, rows), 'finding')];
  const ends = rows.flatMap(row => [row.value, row.low, row.high]).filter(value => value !== null);
  const limits = [least([0, ...ends]), most([0, ...ends])];
  const sheets = make('div', '', keys.length > 1 ? 'sheets' : 'sheets one');
  if (keys.length > 1) {
    const field = explorer.fields[keys[1]], total = label => rows.reduce((so, row) => so + (row.labels[1] === label ? row.value ?? 0 : 0), 0);
    const labels = [...new Set(rows.map(row => row.labels[1]))].sort((one, two) => field.ordered ? one - two : total(two) - total(one));
    for (const label of labels.slice(0, MOST_SHEETS)) sheets.append(drawSheet(explorer, question, rows.filter(row => row.labels[1] === label), `${field.name}: ${field.distinct[label]}`, limits));
    if (labels.length > MOST_SHEETS) sheets.append(make('p', `and ${labels.length - MOST_SHEETS} more, in the table below`, 'note'));
  } else sheets.append(drawSheet(explorer, question, rows, null, limits));
  parts.push(sheets);
  if (rows.some(row => row.low === null)) parts.push(make('p', 'Grey bars have no interval: what they need was not measured together, so they rest on what the model takes to be independent.', 'note'));
  const table = make('details'), scroll = make('div', '', 'scroll');
  scroll.append(drawTable(explorer, question, rows));
  table.append(make('summary', `All ${rows.length.toLocaleString('en')} numbers`), scroll);
  const buttons = make('div', '', 'save'), button = make('button', 'Save as CSV');
  button.type = 'button';
  button.onclick = () => save(explorer, question, rows);
  buttons.append(button);
  const same = make('details'), code = make('pre');
  code.append(make('code', explorer.sql(question)));
  same.append(make('summary', 'The same in SQL'), code);
  parts.push(table, same, buttons);
  box.replaceChildren(...parts);
}

function addFilter(explorer, at) {
  if (document.querySelector(`#filters fieldset[data-field="${at}"]`)) return;
  const field = explorer.fields[at], box = make('fieldset'), list = make('div', '', 'list'), remove = make('button', 'remove');
  box.dataset.field = at;
  field.distinct.forEach((name, value) => {
    const label = make('label'), check = Object.assign(document.createElement('input'), {type: 'checkbox', value});
    label.append(check, ` ${name}`);
    list.append(label);
  });
  list.onchange = () => answer(explorer);
  remove.type = 'button';
  remove.onclick = () => { box.remove(); answer(explorer); };
  box.append(make('legend', `${field.name} is one of`), list, remove);
  find('filters').append(box);
}

function start(explorer) {
  const columns = explorer.fields.map((field, at) => [String(at), field.name]), none = ['', '(nothing)'];
  const numbers = explorer.fields.flatMap((field, at) => field.ends ? [[`average ${at}`, `average ${field.name}`], [`sum ${at}`, `sum of ${field.name}`]] : []);
  const shares = explorer.fields.flatMap((field, at) => field.distinct.length <= 12 ? field.distinct.map((name, label) => [`share ${at} ${label}`, `share with ${field.name} ${name}`]) : []);
  listOptions(find('measure'), [['count', 'number of records'], ...numbers, ...shares]);
  listOptions(find('first'), [none, ...columns], columns[0][0]);
  listOptions(find('second'), [none, ...columns]);
  listOptions(find('where'), [['', '(choose a column)'], ...columns]);
  for (const id of ['measure', 'first', 'second']) find(id).onchange = () => answer(explorer);
  find('where').onchange = event => {
    if (event.target.value) addFilter(explorer, Number(event.target.value));
    event.target.value = '';
  };
  find('question').onsubmit = () => false;
  answer(explorer);
}

const opened = (async () => {
  try {
    const explorer = new Explorer(JSON.parse(find('about').textContent), await unpack(find('numbers').textContent));
    start(explorer);
    return explorer;
  } catch (error) {
    find('answer').replaceChildren(make('p', 'This browser is too old to unpack the model; a current Firefox, Chrome, Edge or Safari opens the page.', 'warn strong'));
    throw error;
  }
})();
