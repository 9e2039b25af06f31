// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Shortcuts. Single letters count outside of text fields only, and can be switched off (WCAG 2.1.4).

const KEY = 'rivulet.single-keys';

/** For the help page, and for docs/console.md. */
export const SHORTCUTS = [
  { keys: ['Enter'], does: 'send; with Shift a new line' },
  { keys: ['Esc'], does: 'stop the answer; close what is open' },
  { keys: ['/'], does: 'write a message' },
  { keys: ['n'], does: 'new session' },
  { keys: ['f'], does: 'fork the session at its end' },
  { keys: ['u'], does: 'undo: rewind to where the last turn began' },
  { keys: ['r'], does: 'retry the last turn' },
  { keys: ['s'], does: 'sessions: arrows choose, Enter opens, F2 renames, Delete deletes' },
  { keys: ['a'], does: 'the last answer: arrows read its tokens and their probabilities' },
  { keys: ['x'], does: 'shade tokens that were unlikely' },
  { keys: ['p'], does: 'sampling' },
  { keys: ['t'], does: 'theme: auto, light, dark' },
  { keys: ['?'], does: 'this page' },
];

export const singleKeysEnabled = () => localStorage.getItem(KEY) !== 'off';
/** @param {boolean} enabled */
export function enableSingleKeys(enabled) {
  if (enabled) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, 'off');
}

/** @param {EventTarget|null} target */
function takesText(target) {
  return target instanceof Element && target.closest('input, textarea, select, [contenteditable]') !== null;
}

/** `actions` has one for each key, and `Escape`, which may return false to leave the key to others.
 * @param {Record<string, () => boolean|void>} actions */
export function startKeys(actions) {
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector('dialog[open]')) return;
    const single = event.key !== 'Escape';
    if (single && (!singleKeysEnabled() || takesText(event.target))) return;
    const action = actions[event.key];
    if (action !== undefined && action() !== false) event.preventDefault();
  });
}
