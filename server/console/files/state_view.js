// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// What is special here, live: the context grows, the state does not; log-linear models hold a page for each binary digit 1 of the number
// of chunks; and what of a turn was cached, computed and guessed.

import { chunksPerCell, drawSizes, drawTape, holdsPage, pagesHeld, stateBytesAt } from './chart.js';
import { byId, bytes, count, counted, el, percent, setText, svg } from './dom.js';
import { speedOf } from './turn.js';

/**
 * @typedef {import('./api.js').Model} Model
 * @typedef {{position: number, turn: import('./store.js').Turn|null, running: boolean, measured: import('./store.js').Measured[]}} Now
 */

/** @param {string} name @param {HTMLElement} value */
const figure = (name, value) => el('div', { class: 'figure' }, el('dt', {}, name), value);

/** The context's parts, as of the last turn.
 * @param {Now} now @returns {import('./chart.js').Spans} */
function spansOf({ position, turn }) {
  if (turn === null) return { cached: position, prompt: position, end: position };
  const prompt = turn.position ?? turn.begin;
  // Before the end only that the session's own state is there is known.
  const cached = turn.usage === null ? turn.begin : Math.min(turn.usage.cached, prompt);
  return { cached, prompt, end: Math.max(position, prompt) };
}

export class StateView {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.tokens = el('dd', {});
    this.bytes = el('dd', {});
    this.sizes = svg('svg', { class: 'sizes', 'aria-hidden': 'true' });
    this.tape = svg('svg', { class: 'tape', 'aria-hidden': 'true' });
    this.said = el('p', { class: 'fact' });
    this.tapeFact = el('p', { class: 'fact' });
    this.counter = new Counter(model);
    this.turn = el('dl', { class: 'numbers' });
    byId('state').replaceChildren(
      el('h2', { id: 'state-title' }, 'State'), el('dl', { class: 'figures' }, figure('Context', this.tokens), figure('State', this.bytes)),
      this.sizes, this.said, ...this.counter.elements, el('h3', {}, 'Context'), this.tape, this.tapeFact, el('h3', {}, 'Last turn'), this.turn);
    /** @type {Now|null} */
    this.next = null;
  }

  /** Draws at the next frame.
   * @param {Now} now */
  show(now) {
    const drawn = this.next !== null;
    this.next = now;
    if (!drawn) requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    const now = this.next;
    this.next = null;
    if (now === null) return;
    const { model } = this;
    const size = now.position === 0 ? 0 : stateBytesAt(model, now.position);
    setText(this.tokens, counted(now.position, 'token'));
    setText(this.bytes, bytes(size));
    drawSizes(this.sizes, model, now.position, now.measured);
    setText(this.said, this.#sizeFact(now));
    this.counter.show(now.position);
    const spans = spansOf(now);
    drawTape(this.tape, model.foldInterval, spans);
    setText(this.tapeFact, this.#tapeFact(spans));
    this.#showTurn(now.turn);
    this.#showStrip(now.position, size);
  }

  /** @param {Now} now */
  #sizeFact({ measured }) {
    const { model } = this;
    const growth = model.bytesPerToken > 0 ? `It grows by ${bytes(model.bytesPerToken)} a token: some layers keep keys and values.`
      : model.levels > 0 ? 'It grows with the logarithm of the context: a page for each binary digit 1.' : 'It does not grow with the context.';
    const last = measured[measured.length - 1];
    return last === undefined ? growth : `${growth} At rest after ${counted(last.position, 'token')}, the server says ${bytes(last.bytes)}.`;
  }

  /** @param {import('./chart.js').Spans} spans */
  #tapeFact({ cached, prompt, end }) {
    const cell = chunksPerCell(Math.ceil(end / this.model.foldInterval)) * this.model.foldInterval;
    if (end === 0) return `A cell will be ${cell} tokens.`;
    const parts = [[cached, 'not computed again'], [prompt - cached, 'computed'], [end - prompt, 'generated']];
    return `${parts.filter(([tokens]) => Number(tokens) > 0).map(([tokens, what]) => `${count(Number(tokens))} ${what}`).join(', ')}. A cell is ${count(cell)} tokens.`;
  }

  /** @param {import('./store.js').Turn|null} turn */
  #showTurn(turn) {
    /** @type {[string, string][]} */
    const rows = [];
    if (turn === null) rows.push(['Tokens', '–']);
    else {
      if (turn.usage) rows.push(['Prompt', counted(turn.usage.prompt, 'token')], ['Cached', this.#cachedFact(turn)]);
      rows.push(['Generated', counted(turn.tokens, 'token')]);
      const checked = turn.usage ? turn.usage.accepted + turn.usage.rejected : turn.guessed;
      if (this.model.speculate !== 'off') rows.push(['Guessed right', turn.usage ? `${turn.usage.accepted} of ${checked}` : String(turn.guessed)]);
      if (turn.firstMs !== null) rows.push(['First token', `${turn.firstMs.toFixed(0)} ms`]);
      const speed = speedOf(turn);
      if (speed !== null) rows.push(['Speed', `${speed.toFixed(0)} tokens/s`]);
    }
    this.turn.replaceChildren(...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
  }

  /** @param {import('./store.js').Turn} turn */
  #cachedFact(turn) {
    const cached = turn.usage?.cached ?? 0;
    return turn.position ? `${count(cached)} of ${count(turn.position)} (${percent(cached / turn.position)})` : count(cached);
  }

  /** @param {number} position @param {number} size */
  #showStrip(position, size) {
    const parts = [el('span', {}, counted(position, 'token')), el('span', {}, `${bytes(size)} state`)];
    if (this.model.levels > 0) parts.push(el('span', { class: 'digits' }, Math.floor(position / this.model.foldInterval).toString(2)));
    byId('strip').replaceChildren(...parts);
  }
}

/** The pages of log-linear layers as a binary counter; for other models the tail alone. */
class Counter {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.levels = el('ol', { class: 'levels', role: 'img' });
    this.tail = el('div', { class: 'tail', 'aria-hidden': 'true' });
    this.tail.append(...Array.from({ length: model.foldInterval }, () => el('span', {})));
    this.fact = el('p', { class: 'fact' });
    const title = model.levels > 0 ? 'Fenwick pages' : 'Base and tail';
    this.elements = [el('h3', {}, title), ...(model.levels > 0 ? [this.levels] : []), this.tail, this.fact];
    this.shown = -1;
  }

  /** @param {number} position */
  show(position) {
    const { levels, foldInterval } = this.model;
    const chunks = Math.floor(position / foldInterval), rest = position % foldInterval;
    [...this.tail.children].forEach((dot, i) => dot.classList.toggle('on', i < rest));
    const tail = `${rest} of ${foldInterval} tokens in the tail`;
    if (levels === 0) return setText(this.fact, `${counted(chunks, 'chunk')} folded into the base, ${tail}.`);
    if (chunks !== this.shown) this.#showLevels(chunks);
    this.shown = chunks;
    setText(this.fact, `${counted(chunks, 'chunk')} = ${chunks.toString(2)} in binary: ${counted(pagesHeld(chunks, levels), 'page')}, and ${tail}.`);
  }

  /** @param {number} chunks */
  #showLevels(chunks) {
    const { levels, foldInterval } = this.model;
    const shown = Math.min(levels, Math.max(8, chunks.toString(2).length));
    while (this.levels.childElementCount < shown) {
      const level = this.levels.childElementCount;
      this.levels.append(el('li', {}, el('span', { class: 'digit' }), el('span', { class: 'size' }, shortCount(foldInterval * 2 ** level))));
    }
    [...this.levels.children].forEach((box, level) => {
      const held = holdsPage(chunks, level, levels);
      box.classList.toggle('on', held);
      setText(/** @type {Element} */ (box.firstChild), held ? '1' : '0');
    });
    this.levels.setAttribute('aria-label', `Pages from the largest to the smallest: ${[...this.levels.children].reverse().map((box) => box.firstChild?.textContent).join('')}`);
  }
}

/** @param {number} value */
const shortCount = (value) => (value < 1000 ? String(value) : value < 1_000_000 ? `${Math.round(value / 1024)}k` : `${Math.round(value / 1048576)}M`);

