// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Drawings of the state view: the state's size over the context, and the context as chunks. Each has a text beside it that says the same.

import { count, svg } from './dom.js';

/** @typedef {import('./api.js').Model} Model */

/** How many binary digits of n are 1, those from `levels` - 1 on counted once.
 * @param {number} n @param {number} levels */
export function pagesHeld(n, levels) {
  let pages = 0;
  for (let level = 0; level < levels; ++level) pages += holdsPage(n, level, levels) ? 1 : 0;
  return pages;
}

/** @param {number} n folded chunks @param {number} level @param {number} levels */
export function holdsPage(n, level, levels) {
  const above = Math.floor(n / 2 ** level);
  return level + 1 < levels ? above % 2 === 1 : above > 0;
}

/** The size of a state after so many tokens, by what the server says of its model.
 * @param {Model} model @param {number} position */
export function stateBytesAt(model, position) {
  const chunks = Math.floor(position / model.foldInterval);
  const fixed = model.stateBytes - model.levels * model.levelBytes;
  return fixed + pagesHeld(chunks, model.levels) * model.levelBytes + chunks * model.foldInterval * model.bytesPerToken;
}

const WIDTH = 288, HEIGHT = 96, LEFT = 4, RIGHT = 60, TOP = 10, BOTTOM = 18;

/** @param {number} value */
function roundUp(value) {
  const power = 2 ** Math.ceil(Math.log2(Math.max(value, 64)));
  return value <= 0.75 * power ? 0.75 * power : power;
}

/**
 * Tokens climb, and the state's bytes do not: both from 0 to their largest value here.
 * @param {SVGElement} root @param {Model} model @param {number} position @param {import('./store.js').Measured[]} measured
 */
export function drawSizes(root, model, position, measured) {
  const end = roundUp(position);
  const most = Math.max(stateBytesAt(model, position), ...measured.map((point) => point.bytes), model.stateBytes) * 1.15;
  const x = (/** @type {number} */ tokens) => LEFT + ((WIDTH - LEFT - RIGHT) * tokens) / end;
  const y = (/** @type {number} */ share) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;
  const steps = Math.min(120, Math.max(1, Math.floor(position / model.foldInterval)));
  const places = Array.from({ length: steps + 1 }, (_, i) => Math.round((position * i) / steps));
  const state = places.map((at, i) => `${i === 0 ? 'M' : 'L'}${x(at).toFixed(1)} ${y(stateBytesAt(model, at) / most).toFixed(1)}`).join('');
  const last = stateBytesAt(model, position);
  root.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  const axis = svg('path', { class: 'axis', d: `M${LEFT} ${y(0)}H${WIDTH - RIGHT}` });
  if (position === 0) return root.replaceChildren(axis);
  root.replaceChildren(
    axis,
    svg('path', { class: 'line tokens', d: `M${x(0)} ${y(0)}L${x(position)} ${y(position / end)}` }),
    svg('path', { class: 'line state', d: state }),
    ...measured.filter((point) => point.position <= end).map((point) => svg('circle', { class: 'measured', cx: x(point.position), cy: y(point.bytes / most), r: 2.5 })),
    label('state', x(position), y(last / most), 'state'), label('tokens', x(position), apart(y(position / end), y(last / most)), 'tokens'),
    svg('text', { class: 'tick', x: LEFT, y: HEIGHT - 5 }, '0'),
    svg('text', { class: 'tick', x: WIDTH - RIGHT, y: HEIGHT - 5, 'text-anchor': 'end' }, `${count(end)} tokens`));
}

/** @param {number} wanted @param {number} other */
function apart(wanted, other) {
  if (Math.abs(wanted - other) >= 13) return wanted;
  return wanted >= other ? other + 13 : other - 13;
}

/** @param {string} text @param {number} x @param {number} y @param {string} kind */
function label(text, x, y, kind) {
  return svg('text', { class: `end ${kind}`, x: x + 6, y: y + 4 }, text);
}

const COLUMNS = 16, ROWS = 6, CELL = 16, GAP = 2;

/**
 * The last turn's part of the context: what was there, what was computed, what was generated.
 * @typedef {{cached: number, prompt: number, end: number}} Spans  positions where each part ends
 */

/** How many chunks a cell has, so that all fit.
 * @param {number} chunks */
export const chunksPerCell = (chunks) => Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(chunks, 1) / (COLUMNS * ROWS))));

/** @param {SVGElement} root @param {number} interval @param {Spans} spans */
export function drawTape(root, interval, { cached, prompt, end }) {
  const chunks = Math.ceil(end / interval);
  const each = chunksPerCell(chunks) * interval;
  const cells = Math.max(1, Math.ceil(end / each));
  const rows = Math.max(1, Math.ceil(Math.max(cells, COLUMNS) / COLUMNS));
  root.setAttribute('viewBox', `0 0 ${COLUMNS * (CELL + GAP)} ${rows * (CELL + GAP)}`);
  const parts = [];
  for (let i = 0; i < rows * COLUMNS; ++i) {
    const left = (i % COLUMNS) * (CELL + GAP), top = Math.floor(i / COLUMNS) * (CELL + GAP), from = i * each;
    parts.push(svg('rect', { class: 'cell', x: left + 0.5, y: top + 0.5, width: CELL - 1, height: CELL - 1, rx: 2 }));
    const ends = [['cached', cached], ['prompt', prompt], ['made', end]];
    let begun = from;
    for (const [kind, until] of ends) {
      const to = Math.min(Number(until), from + each);
      if (to > begun) parts.push(filling(String(kind), left, top, (begun - from) / each, (to - from) / each));
      begun = Math.max(begun, to);
    }
  }
  root.replaceChildren(hatching(), ...parts);
}

/** @param {string} kind @param {number} left @param {number} top @param {number} from @param {number} to shares of the cell */
function filling(kind, left, top, from, to) {
  const inner = CELL - 2;
  return svg('rect', { class: `filling ${kind}`, x: left + 1 + inner * from, y: top + 1, width: Math.max(inner * (to - from), 0.6), height: inner });
}

function hatching() {
  const pattern = svg('pattern', { id: 'hatch', width: 4, height: 4, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
                      svg('rect', { class: 'hatch-ground', width: 4, height: 4 }), svg('rect', { class: 'hatch-line', width: 1.4, height: 4 }));
  return svg('defs', {}, pattern);
}
