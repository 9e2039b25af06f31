// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// The conversation: one article for each turn.

import { byId, counted, el, percent } from './dom.js';
import { explainTokens, hidePopover, tokenSpan } from './popover.js';
import { speedOf } from './turn.js';

/**
 * @typedef {import('./store.js').Turn} Turn
 * @typedef {{retry: () => void, fork: (turn: Turn) => void, rewind: (turn: Turn) => void, rewindTo: (position: number) => void,
 *            again: () => void}} Actions
 */

const FINISHES = { length: 'token limit reached', abort: 'ended from outside', tool_calls: 'calls a tool' };

/** @param {Turn} turn */
function metaOf(turn) {
  const parts = [counted(turn.tokens, 'token')];
  const speed = speedOf(turn);
  if (speed !== null) parts.push(`${speed.toFixed(0)} tokens/s`);
  if (turn.usage && turn.usage.cached > 0 && turn.position !== null) parts.push(`${percent(turn.usage.cached / Math.max(turn.position, 1))} of the context cached`);
  if (turn.guessed > 0) parts.push(`${turn.guessed} guessed`);
  if (turn.stopped) parts.push('stopped');
  else if (turn.finish !== null && turn.finish in FINISHES) parts.push(FINISHES[/** @type {keyof typeof FINISHES} */ (turn.finish)]);
  return parts.join(' · ');
}

export class TurnView {
  /** @param {Turn} turn @param {Actions} actions @param {string} speaker */
  constructor(turn, actions, speaker) {
    this.turn = turn;
    this.actions = actions;
    this.shown = '';
    this.thought = el('div', { class: 'text thought', tabindex: 0, role: 'group', 'aria-label': 'Thinking; arrow keys read the tokens' });
    this.details = el('details', { class: 'thinking', hidden: true }, el('summary', {}, 'Thinking'), this.thought);
    this.answer = el('div', { class: 'text answer', tabindex: 0, role: 'group', 'aria-label': 'Answer; arrow keys read the tokens' });
    this.meta = el('p', { class: 'meta' });
    this.problem = el('div', { class: 'problem', hidden: true });
    this.buttons = el('div', { class: 'turn-actions', role: 'group', 'aria-label': 'This turn' });
    this.element = el('article', { class: turn.chat ? 'turn chat' : 'turn continued' },
                      el('h2', { class: 'who' }, turn.chat ? 'You' : 'Prompt'), el('div', { class: 'text you' }, turn.chat ? turn.input : turn.input.replace(/^ /, '')),
                      el('h2', { class: 'who' }, speaker), this.details, this.answer, this.problem,
                      el('div', { class: 'foot' }, this.meta, this.buttons));
    explainTokens(this.thought);
    explainTokens(this.answer);
    this.append(turn.pieces);
  }

  /** @param {import('./tokens.js').Piece[]} pieces */
  append(pieces) {
    for (const piece of pieces) (piece.kind === 'thinking' ? this.thought : this.answer).append(tokenSpan(piece));
    const thinks = this.thought.childElementCount > 0;
    if (thinks && this.details.hidden) {
      this.details.hidden = false;
      this.details.setAttribute('open', '');
    }
  }

  /** @param {{running: boolean, last: boolean, mayRewind: boolean}} how */
  show({ running, last, mayRewind }) {
    this.element.classList.toggle('running', running);
    this.element.setAttribute('aria-busy', String(running));
    if (!running && this.answer.childElementCount > 0) this.details.removeAttribute('open');
    this.meta.textContent = running ? '' : metaOf(this.turn);
    this.#showProblem();
    // Buttons are made again only where they change: one that is being pressed must stay.
    const wanted = [running, last, mayRewind, this.turn.end, this.turn.error].join();
    if (wanted !== this.shown) this.buttons.replaceChildren(...(running ? [] : this.#actions(last, mayRewind)));
    this.shown = wanted;
  }

  #showProblem() {
    this.problem.hidden = this.turn.error === null;
    if (this.turn.error === null) return;
    this.problem.replaceChildren(el('p', { role: 'alert' }, el('strong', {}, 'Error: '), this.turn.error),
                                 el('button', { class: 'small', onclick: this.actions.again }, 'Try again'));
  }

  /** @param {boolean} last @param {boolean} mayRewind */
  #actions(last, mayRewind) {
    const { turn, actions } = this;
    if (turn.error !== null && turn.end === null) return [];
    const button = (/** @type {string} */ label, /** @type {string} */ title, /** @type {() => void} */ action) =>
      el('button', { class: 'link', title, onclick: action }, label);
    const buttons = [];
    if (last && mayRewind) buttons.push(button('Retry', 'Take this turn back and send it again (r)', actions.retry));
    if (turn.end !== null) buttons.push(button('Fork here', 'A new session that goes on after this turn', () => actions.fork(turn)));
    if (mayRewind) buttons.push(button('Rewind', 'Take the session back to where this turn began', () => actions.rewind(turn)));
    return buttons;
  }
}

export class Thread {
  /** @param {Actions} actions */
  constructor(actions) {
    this.root = byId('thread');
    this.actions = actions;
    /** @type {TurnView[]} */
    this.views = [];
    /** @type {{view: TurnView, pieces: import('./tokens.js').Piece[]}|null} */
    this.waiting = null;
  }

  /**
   * Shows a session from its beginning.
   * @param {Turn[]} turns @param {import('./api.js').Session|null} session @param {{name: string, chat: boolean, running: boolean}} how
   */
  show(turns, session, { name, chat, running }) {
    hidePopover();
    this.waiting = null;
    this.speaker = chat ? name : 'Continued';
    const known = this.#knownFrom(turns, session);
    this.views = turns.map((turn) => new TurnView(turn, this.actions, this.speaker ?? name));
    this.root.replaceChildren(...(known ?? []), ...this.views.map((view) => view.element));
    if (this.root.childElementCount === 0) this.root.append(this.#welcome(name, chat));
    this.update(session, running);
    this.root.scrollTop = this.root.scrollHeight;
  }

  /** @param {string} name @param {boolean} chat */
  #welcome(name, chat) {
    const how = chat ? 'Ask something. The session keeps its context as a state of fixed size, so a turn computes only what is new.'
                     : 'This model has no chat template, so it goes on with the text that you give it.';
    return el('div', { class: 'welcome' }, el('p', { class: 'lead' }, name), el('p', {}, how));
  }

  /** What is said of a past that this tab did not see.
   * @param {Turn[]} turns @param {import('./api.js').Session|null} session */
  #knownFrom(turns, session) {
    const from = turns.length > 0 ? turns[0].begin : session?.position ?? 0;
    if (session === null || from === 0) return null;
    const tokens = from > 0 ? counted(from, 'token') : 'Other turns';
    const kept = session.kept.filter((position) => position < from);
    const buttons = kept.map((position) => el('button', { class: 'small', onclick: () => this.actions.rewindTo(position) },
                                              `Rewind to ${counted(position, 'token')}`));
    return [el('div', { class: 'earlier' },
               el('p', {}, `${tokens} came before. The server keeps a session as state, not as text, so this tab cannot show them.`),
               ...buttons)];
  }

  /** @param {Turn} turn */
  add(turn) {
    this.root.querySelector('.welcome')?.remove();
    this.views.push(new TurnView(turn, this.actions, this.speaker ?? ''));
    this.root.append(this.views[this.views.length - 1].element);
    this.root.scrollTop = this.root.scrollHeight;
  }

  /** Adds to the last turn, once a frame.
   * @param {import('./tokens.js').Piece[]} pieces */
  append(pieces) {
    if (this.waiting !== null) return void this.waiting.pieces.push(...pieces);
    this.waiting = { view: this.views[this.views.length - 1], pieces: [...pieces] };
    requestAnimationFrame(() => this.flush());
  }

  flush() {
    if (this.waiting === null) return;
    const { view, pieces } = this.waiting;
    this.waiting = null;
    const atEnd = this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < 80;
    view.append(pieces);
    if (atEnd) this.root.scrollTop = this.root.scrollHeight;
  }

  /** Buttons and numbers of all turns.
   * @param {import('./api.js').Session|null} session @param {boolean} running */
  update(session, running) {
    this.flush();
    const kept = new Set(session?.kept ?? []);
    this.views.forEach((view, i) => {
      const last = i === this.views.length - 1;
      view.show({ running: running && last, last, mayRewind: !running && kept.has(view.turn.begin) });
    });
  }

  /** The text whose tokens the arrow keys read. */
  focusLastAnswer() {
    this.views[this.views.length - 1]?.answer.focus();
  }
}
