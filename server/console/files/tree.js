// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// The sessions of the server as a tree: a fork stands below the session that it was forked from. One item can be reached by Tab, the
// others from there by arrow keys.

import { byId, count, counted, el } from './dom.js';

/** @typedef {import('./api.js').Session} Session @typedef {{session: Session, level: number}} Item */

/** @param {Session} session */
export function nameOf({ id, name }) {
  if (name) return name;
  return id.startsWith('resp_') ? `Response ${id.slice(5, 11)}` : `Session ${id.slice(0, 6)}`;
}

/** Depth first, the last used roots first, forks in the order in which they were made.
 * @param {Session[]} sessions @returns {Item[]} */
export function inOrder(sessions) {
  const ids = new Set(sessions.map((session) => session.id));
  /** @type {Map<string, Session[]>} */
  const children = new Map();
  for (const session of sessions) {
    const parent = ids.has(session.forkedFrom) && session.forkedFrom !== session.id ? session.forkedFrom : '';
    children.set(parent, [...(children.get(parent) ?? []), session]);
  }
  children.get('')?.sort((a, b) => b.created - a.created);
  /** @type {Item[]} */
  const items = [];
  const visit = (/** @type {string} */ parent, /** @type {number} */ level) => {
    for (const session of children.get(parent) ?? []) {
      items.push({ session, level });
      visit(session.id, level + 1);
    }
  };
  visit('', 1);
  return items;
}

export class Tree {
  /** @param {{open: (id: string) => void, rename: (id: string) => void, remove: (id: string) => void}} actions */
  constructor(actions) {
    this.root = byId('tree');
    this.actions = actions;
    this.shown = '';
    this.root.addEventListener('click', (/** @type {Event} */ event) => {
      const item = /** @type {HTMLElement} */ (event.target).closest('li');
      if (item) actions.open(item.dataset.id ?? '');
    });
    this.root.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => this.#onKey(event));
  }

  /** @param {Session[]} sessions @param {string|null} current @param {number} most that the server was asked for */
  show(sessions, current, most) {
    const focused = this.root.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.id : null;
    const items = inOrder(sessions);
    const wanted = JSON.stringify([items, current]);
    if (wanted === this.shown) return;
    this.shown = wanted;
    const reachable = items.some(({ session }) => session.id === current) ? current : items[0]?.session.id;
    this.root.hidden = items.length === 0;
    this.root.replaceChildren(...items.map((item) => this.#row(item, item.session.id === current, item.session.id === reachable)));
    byId('tree-note').textContent = sessions.length === 0 ? 'No sessions yet. The first message begins one.'
      : sessions.length >= most ? `The first ${count(most)} are shown.` : '';
    if (focused) this.#focus(focused);
  }

  /** @param {Item} item @param {boolean} selected @param {boolean} reachable */
  #row({ session, level }, selected, reachable) {
    const forked = session.forkedFrom === '' ? null : `fork at ${count(session.forkedAt)}`;
    const facts = [counted(session.position, 'token'), forked, session.busy ? 'busy' : null].filter(Boolean).join(' · ');
    const row = el('li', { role: 'treeitem', 'aria-level': level, 'aria-selected': String(selected), tabindex: reachable ? 0 : -1, 'data-id': session.id,
                           title: session.id },
                   el('span', { class: 'session-name' }, nameOf(session)), el('span', { class: 'facts' }, facts));
    row.style.setProperty('--level', String(Math.min(level - 1, 8)));
    row.classList.toggle('fork', level > 1);
    return row;
  }

  /** @param {string} id */
  #focus(id) {
    for (const row of this.root.children) {
      row.tabIndex = row.dataset.id === id ? 0 : -1;
      if (row.dataset.id === id) row.focus();
    }
  }

  focus() {
    this.root.querySelector('[tabindex="0"]')?.focus();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    /** @type {HTMLElement[]} */
    const rows = [...this.root.children];
    const at = rows.indexOf(/** @type {any} */ (document.activeElement));
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const level = (/** @type {number} */ i) => Number(rows[i].getAttribute('aria-level'));
    const parent = rows.slice(0, at).findLastIndex((_, i) => level(i) < level(at));
    const child = at + 1 < rows.length && level(at + 1) > level(at) ? at + 1 : at;
    const places = /** @type {Record<string, number>} */ ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, ArrowLeft: parent, ArrowRight: child });
    const id = rows[at].dataset.id ?? '';
    if (event.key in places) this.#focus(rows[places[event.key]]?.dataset.id ?? id);
    else if (event.key === 'Enter' || event.key === ' ') this.actions.open(id);
    else if (event.key === 'F2') this.actions.rename(id);
    else if (event.key === 'Delete') this.actions.remove(id);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
