// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Modal questions. The browser keeps the focus inside, closes on Escape, and gives the focus back.

import { byId, el } from './dom.js';
import { SHORTCUTS } from './keys.js';

/**
 * A question with a field, or without. Resolves to the text, or null if it is dismissed.
 * @param {{title: string, text?: string, label?: string, value?: string, type?: string, ok: string}} question without a label: no field
 * @returns {Promise<string|null>}
 */
export function ask({ title, text, label, value = '', type = 'text', ok }) {
  const dialog = byId('ask-dialog');
  if (dialog.open) return Promise.resolve(null);
  const input = label === undefined ? null : el('input', { id: 'ask-input', type, value, autocomplete: 'off' });
  const form = el('form', { method: 'dialog' }, el('h2', { id: 'ask-title' }, title), text === undefined ? null : el('p', {}, text),
                  input === null ? null : el('label', { for: 'ask-input' }, label ?? ''), input,
                  el('div', { class: 'dialog-actions' },
                     el('button', { type: 'button', class: 'small', onclick: () => dialog.close('') }, 'Cancel'),
                     el('button', { type: 'submit', class: 'main', value: 'ok' }, ok)));
  dialog.replaceChildren(form);
  dialog.returnValue = '';
  dialog.showModal();
  (input ?? form.querySelector('button.main'))?.focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'ok' ? /** @type {any} */ (input)?.value ?? '' : null);
    }, { once: true });
  });
}

/** @param {{enabled: boolean, toggle: (enabled: boolean) => void, clearToken: (() => void)|null}} keys */
export function showHelp({ enabled, toggle, clearToken }) {
  const dialog = byId('help-dialog');
  if (dialog.open) return;
  const rows = SHORTCUTS.map(({ keys, does }) => el('tr', {}, el('th', { scope: 'row' }, ...keys.map((key) => el('kbd', {}, key))), el('td', {}, does)));
  const box = /** @type {HTMLInputElement} */ (el('input', { type: 'checkbox', id: 'single-keys' }));
  box.checked = enabled;
  box.addEventListener('change', () => toggle(box.checked));
  dialog.replaceChildren(
    el('h2', { id: 'help-title' }, 'Keyboard'), el('table', { class: 'shortcuts' }, el('tbody', {}, ...rows)),
    el('p', { class: 'check' }, box, el('label', { for: 'single-keys' }, 'Single letters work outside of text fields')),
    el('h2', {}, 'Marks'),
    el('ul', { class: 'legend' },
       el('li', {}, el('span', { class: 't unsure' }, 'token'), ' had a probability under 50 %; ', el('span', { class: 't rare' }, 'token'), ' under 10 %'),
       el('li', {}, el('span', { class: 't guessed' }, 'token'), ' was guessed by speculation, and the model confirmed it'),
       el('li', {}, el('span', { class: 'swatch cached' }), ' tokens whose state was there already: not computed again'),
       el('li', {}, el('span', { class: 'swatch prompt' }), ' tokens of the prompt that were computed; ', el('span', { class: 'swatch made' }), ' generated ones')),
    el('div', { class: 'dialog-actions' },
       clearToken === null ? null : el('button', { class: 'small', onclick: () => { clearToken(); dialog.close(); } }, 'Forget the access token'),
       el('button', { class: 'main', onclick: () => dialog.close() }, 'Close')));
  dialog.showModal();
}
