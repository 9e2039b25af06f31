// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// What a token's probabilities were, beside the token: under the pointer, after a tap, or at the cursor that the arrow keys move.

import { announce, byId, el, percent } from './dom.js';
import { probabilityOf } from './tokens.js';

/** @type {WeakMap<Element, import('./tokens.js').Piece>} */
const pieces = new WeakMap();
/** @type {Element|null} */
let shown = null;

/** @param {import('./tokens.js').Piece} piece */
export function tokenSpan(piece) {
  const span = el('span', { class: classOf(piece) }, piece.text);
  if (piece.tokens.length > 0) pieces.set(span, piece);
  return span;
}

/** @param {import('./tokens.js').Piece} piece */
function classOf(piece) {
  const probability = probabilityOf(piece);
  const names = ['t'];
  if (probability !== null) names.push(probability < 0.1 ? 'rare' : probability < 0.5 ? 'unsure' : 'sure');
  if (piece.tokens.some((token) => token.guessed)) names.push('guessed');
  return names.join(' ');
}

/** Spaces and line ends as signs; special tokens have no text.
 * @param {string} text */
function visible(text) {
  return text === '' ? '(special)' : text.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥');
}

/** @param {string} text @param {number} logprob @param {boolean} chosen */
function bar(text, logprob, chosen) {
  const share = Math.exp(logprob);
  const meter = el('span', { class: 'meter' }, el('span', { class: 'fill' }));
  /** @type {HTMLElement} */ (meter.firstChild).style.width = `${(100 * share).toFixed(1)}%`;
  return el('tr', chosen ? { class: 'chosen' } : {}, el('th', { scope: 'row' }, visible(text), chosen ? el('span', { class: 'tag' }, ' ✓') : null),
            el('td', {}, meter), el('td', { class: 'number' }, percent(share)));
}

/** @param {import('./tokens.js').Token} token */
function tableOf(token) {
  const rows = token.top.map((other) => bar(other.text, other.logprob, other.text === token.text));
  if (token.logprob !== null && !token.top.some((other) => other.text === token.text)) rows.push(bar(token.text, token.logprob, true));
  return el('table', {}, el('tbody', {}, ...rows));
}

/** @param {import('./tokens.js').Piece} piece */
function contentOf(piece) {
  const guessed = piece.tokens.filter((token) => token.guessed).length;
  const probability = probabilityOf(piece);
  const head = el('p', { class: 'head' }, el('strong', {}, visible(piece.text)), probability === null ? ' ' : ` ${percent(probability)}`);
  const notes = [];
  if (piece.tokens.length > 1) notes.push(`${piece.tokens.length} tokens: ${piece.tokens.map((token) => visible(token.text)).join(' ')}`);
  if (guessed > 0) notes.push('guessed by speculation, and right');
  if (probability === null) notes.push('no probabilities are kept of this text');
  const tables = piece.tokens.filter((token) => token.logprob !== null).slice(-3).map(tableOf);
  return [head, ...tables, ...notes.map((note) => el('p', { class: 'note' }, note))];
}

/** @param {Element} span */
function place(span) {
  const popover = byId('popover');
  const box = span.getClientRects()[0] ?? span.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = popover;
  const left = Math.min(Math.max(8, box.left - 12), innerWidth - width - 8);
  const above = box.top - height - 8;
  popover.style.left = `${left}px`;
  popover.style.top = `${above >= 8 ? above : box.bottom + 8}px`;
}

/** @param {Element} span */
function show(span) {
  const piece = pieces.get(span);
  if (piece === undefined) return hidePopover();
  shown?.classList.remove('current');
  shown = span;
  span.classList.add('current');
  byId('popover').replaceChildren(...contentOf(piece));
  byId('popover').hidden = false;
  place(span);
}

/** @returns {boolean} whether there was one */
export function hidePopover() {
  const was = shown !== null;
  shown?.classList.remove('current');
  shown = null;
  byId('popover').hidden = true;
  return was;
}

/** @param {import('./tokens.js').Piece} piece @param {number} place @param {number} of */
function spoken(piece, place, of) {
  const probability = probabilityOf(piece);
  const token = piece.tokens[piece.tokens.length - 1];
  const others = token.top.filter((other) => other.text !== token.text).slice(0, 2);
  const chance = probability === null ? 'no probability' : percent(probability);
  return [`${visible(piece.text)}, ${chance}`, ...others.map((other) => `${visible(other.text)} ${percent(Math.exp(other.logprob))}`),
          piece.tokens.some((one) => one.guessed) ? 'guessed' : '', `${place + 1} of ${of}`].filter(Boolean).join('; ');
}

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };

/** Moves the cursor within a text.
 * @param {KeyboardEvent} event */
function onKey(event) {
  const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
  if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  const text = /** @type {Element} */ (event.currentTarget);
  const spans = [...text.querySelectorAll('.t')].filter((span) => pieces.has(span));
  if (spans.length === 0) return;
  event.preventDefault();
  const at = shown === null ? -1 : spans.indexOf(shown);
  const next = Math.min(Math.max(at < 0 && step > 0 ? 0 : at + step, 0), spans.length - 1);
  spans[next].scrollIntoView({ block: 'nearest' });
  show(spans[next]);
  announce(spoken(/** @type {import('./tokens.js').Piece} */ (pieces.get(spans[next])), next, spans.length));
}

/** Makes the tokens of a text answer to pointer and keys.
 * @param {HTMLElement} text */
export function explainTokens(text) {
  text.addEventListener('pointerover', (event) => {
    if (event.pointerType === 'mouse') show(/** @type {Element} */ (event.target));
  });
  text.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') hidePopover(); });
  text.addEventListener('click', (event) => show(/** @type {Element} */ (event.target)));
  text.addEventListener('keydown', onKey);
  text.addEventListener('blur', hidePopover);
}

export function startPopover() {
  document.addEventListener('scroll', hidePopover, { capture: true, passive: true });
  document.addEventListener('pointerdown', (event) => {
    if (!(/** @type {Element} */ (event.target)).closest('.t')) hidePopover();
  });
}
