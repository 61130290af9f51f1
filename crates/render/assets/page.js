// What moves on a page: tooltips, toggled series, sorted and filtered tables. Everything is readable without it.
'use strict';
(() => {
  const all = (root, query) => [...root.querySelectorAll(query)];
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const tip = make('div', { id: 'tip', hidden: true });
  document.body.append(tip);

  const line = (text, tag, hueOf) => {
    const row = make('div');
    if (hueOf) row.append(make('i', { style: '--c:' + getComputedStyle(hueOf).getPropertyValue('--c') }));
    row.append(make(tag, { textContent: text }));
    return row;
  };
  const showTip = (event, rows) => {
    tip.replaceChildren(...rows);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 14, innerHeight - box.height - 6);
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = Math.max(4, top) + 'px';
  };

  // The browser's own tooltip would double ours: keep its text, drop the element.
  for (const title of all(document, '.plot title')) {
    title.parentNode.tip = title.textContent;
    title.remove();
  }

  const shown = figure => all(figure, '.series:not(.off)').map(series => ({
    series, name: series.dataset.name, points: all(series, '.pt')
  })).filter(s => s.points.length);
  const at = (point, axis) => +point.getAttribute(axis);
  const closest = (points, distance) => points.reduce((best, p) => distance(p) < distance(best) ? p : best);
  // Pointer position in the drawing's own units.
  const place = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());

  const pickPoint = (figure, svg, event) => {
    const { x, y } = place(svg, event);
    const distance = p => (at(p, 'cx') - x) ** 2 + (at(p, 'cy') - y) ** 2;
    const candidates = shown(figure).map(s => ({ ...s, point: closest(s.points, distance) }));
    if (!candidates.length) return [];
    const best = candidates.reduce((a, b) => distance(b.point) < distance(a.point) ? b : a);
    if (distance(best.point) > 45 ** 2) return [];
    best.point.classList.add('near');
    return [line(best.name, 'b', best.series), line(best.point.dataset.y, 'span'), line(best.point.dataset.x, 'span')];
  };
  const pickColumn = (figure, svg, event) => {
    const { x } = place(svg, event);
    const rows = [];
    const cross = svg.querySelector('.cross');
    // Drawn back to front; listed as in the legend.
    for (const { series, name, points } of shown(figure).sort((a, b) => a.series.dataset.s - b.series.dataset.s)) {
      const point = closest(points, p => Math.abs(at(p, 'cx') - x));
      if (!rows.length) {
        rows.push(line(point.dataset.x, 'b'));
        cross.setAttribute('transform', `translate(${at(point, 'cx')})`);
        cross.style.display = 'inline';
      }
      point.classList.add('near');
      rows.push(line(`${name}  ${point.dataset.y}`, 'span', series));
    }
    return rows;
  };
  const pickMark = (figure, svg, event) => {
    let mark = event.target;
    while (mark && !mark.tip) mark = mark.parentElement;
    return mark ? mark.tip.split('\n').map((t, i) => line(t, i ? 'span' : 'b')) : [];
  };

  for (const figure of all(document, '.chart')) {
    const svg = figure.querySelector('.plot svg');
    const leave = () => {
      all(svg, '.near').forEach(p => p.classList.remove('near'));
      all(svg, '.cross').forEach(c => c.style.display = 'none');
      tip.hidden = true;
    };
    svg.addEventListener('pointermove', event => {
      leave();
      const rows = { point: pickPoint, column: pickColumn, mark: pickMark }[figure.dataset.pick](figure, svg, event);
      if (rows.length) showTip(event, rows);
    });
    svg.addEventListener('pointerleave', leave);

    const keys = all(figure, '.key');
    const parts = key => all(svg, `[data-s="${key.dataset.s}"]`);
    const set = (key, on) => {
      key.setAttribute('aria-pressed', on);
      parts(key).forEach(p => p.classList.toggle('off', !on));
    };
    const isOn = key => key.getAttribute('aria-pressed') === 'true';
    const focus = (key, on) => {
      figure.classList.toggle('focus', on && isOn(key));
      parts(key).forEach(p => p.classList.toggle('on', on));
    };
    for (const key of keys) {
      key.addEventListener('click', event => {
        const alone = keys.every(k => isOn(k) === (k === key));
        if (event.shiftKey) keys.forEach(k => set(k, alone || k === key));
        else set(key, !isOn(key));
        focus(key, true);
      });
      for (const [name, on] of [['pointerenter', true], ['focus', true], ['pointerleave', false], ['blur', false]])
        key.addEventListener(name, () => focus(key, on));
    }
  }

  const value = cell => cell.dataset.v ?? cell.textContent;
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const box of all(document, '.table')) {
    const [body, heads] = [box.querySelector('tbody'), all(box, 'th')];
    const [filter, download, count] = ['input', '.tools button', '.shown'].map(q => box.querySelector(q));
    filter.hidden = download.hidden = false;
    heads.forEach((head, column) => {
      head.setAttribute('aria-sort', 'none');
      head.tabIndex = 0;
      const sort = () => {
        // Numbers are most often wanted from the top, names from A.
        const first = head.classList.contains('n') ? 'descending' : 'ascending';
        const other = first === 'ascending' ? 'descending' : 'ascending';
        const order = head.getAttribute('aria-sort') === first ? other : first;
        heads.forEach(h => h.setAttribute('aria-sort', h === head ? order : 'none'));
        const sign = order === 'ascending' ? 1 : -1;
        const rank = (a, b) => {
          const [x, y] = [value(a.cells[column]), value(b.cells[column])];
          if (x === '' || y === '') return (x === '') - (y === '');
          return sign * (isNaN(x) || isNaN(y) ? compare(x, y) : x - y);
        };
        body.append(...[...body.rows].sort(rank));
      };
      head.addEventListener('click', sort);
      head.addEventListener('keydown', event => { if (event.key === 'Enter') sort(); });
    });
    filter.addEventListener('input', () => {
      const words = filter.value.toLowerCase().split(/\s+/);
      for (const row of body.rows) row.hidden = !words.every(w => row.textContent.toLowerCase().includes(w));
      const visible = [...body.rows].filter(r => !r.hidden).length;
      count.textContent = (visible < body.rows.length ? visible + ' of ' : '') + body.rows.length + ' rows';
    });
    download.addEventListener('click', () => {
      const quote = text => /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
      const rows = [heads, ...[...body.rows].filter(r => !r.hidden).map(r => [...r.cells])];
      const csv = rows.map(cells => cells.map(c => quote(value(c))).join(',') + '\n').join('');
      const href = URL.createObjectURL(new Blob([csv], { type: 'text/csv' }));
      const link = make('a', { href, download: box.dataset.name + '.csv' });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  for (const button of all(document, '.command button')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      getSelection().selectAllChildren(button.parentNode.querySelector('code'));
      document.execCommand('copy');
      button.textContent = 'copied';
    });
  }
})();
