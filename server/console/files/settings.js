// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// The sampling controls. A field that is empty is not sent: the model's own default counts.

import { byId, el } from './dom.js';

const KEY = 'rivulet.settings';

/**
 * @typedef {{name: string, label: string, hint: string, type?: 'number'|'text'|'select', min?: number, max?: number, step?: number|'any',
 *            placeholder?: string, chat?: boolean, options?: [string, string][]}} Field
 * @type {Field[]}
 */
const FIELDS = [
  { name: 'temperature', label: 'Temperature', hint: '0 always takes the most likely token', min: 0, step: 'any' },
  { name: 'top_p', label: 'Top p', hint: 'The likeliest tokens that have this share together', min: 0.000001, max: 1, step: 'any' },
  { name: 'top_k', label: 'Top k', hint: 'So many of the likeliest tokens; 0: all', min: 0, max: 4294967295, step: 1 },
  { name: 'min_p', label: 'Min p', hint: 'At least this share of the likeliest token\'s probability', min: 0, max: 0.999999, step: 'any' },
  { name: 'repetition_penalty', label: 'Repetition penalty', hint: 'Above 1: less of what the session holds', min: 0.000001, step: 'any' },
  { name: 'frequency_penalty', label: 'Frequency penalty', hint: '−2 to 2, for each time in this turn', min: -2, max: 2, step: 'any' },
  { name: 'presence_penalty', label: 'Presence penalty', hint: '−2 to 2, once in this turn', min: -2, max: 2, step: 'any' },
  { name: 'seed', label: 'Seed', hint: 'The same seed gives the same tokens', min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, placeholder: 'random' },
  { name: 'max_tokens', label: 'Max tokens', hint: 'Of an answer', min: 1, max: 4294967295, step: 1 },
  { name: 'top_logprobs', label: 'Alternatives', hint: 'Probabilities shown for each token, 0 to 20', min: 0, max: 20, step: 1, placeholder: '5' },
  { name: 'thinking', label: 'Thinking', hint: 'If the chat template knows it', type: 'select', chat: true,
    options: [['', 'as the template does'], ['true', 'on'], ['false', 'off']] },
  { name: 'system', label: 'System prompt', hint: 'Sent when a session begins', type: 'text', chat: true },
];

/** @param {Field} field */
function control(field) {
  const attributes = { id: `set-${field.name}`, name: field.name, 'aria-describedby': `hint-${field.name}` };
  if (field.type === 'text') return el('textarea', { ...attributes, rows: 3 });
  if (field.type === 'select') {
    return el('select', attributes, ...(field.options ?? []).map(([value, label]) => el('option', { value }, label)));
  }
  return el('input', { ...attributes, type: 'number', inputmode: Number(field.min) < 0 ? 'text' : 'decimal', min: field.min, max: field.max, step: field.step,
                       placeholder: field.placeholder ?? 'default' });
}

/** @param {Field} field */
function row(field) {
  return el('div', { class: field.type === 'text' ? 'field tall' : 'field' }, el('label', { for: `set-${field.name}` }, field.label),
            control(field), el('p', { id: `hint-${field.name}`, class: 'field-hint' }, field.hint));
}

/** @returns {Record<string, string>} */
function values() {
  return Object.fromEntries([...new FormData(byId('settings'))].map(([name, value]) => [name, String(value)]));
}

/** @param {Record<string, string>} saved */
function fill(saved) {
  for (const field of FIELDS) byId(`set-${field.name}`).value = saved[field.name] ?? '';
}

export function startSettings() {
  byId('settings').append(...FIELDS.map(row));
  byId('settings').addEventListener('submit', (/** @type {Event} */ event) => event.preventDefault());
  try {
    fill(JSON.parse(sessionStorage.getItem(KEY) ?? '{}'));
  } catch { /* as if nothing was saved */ }
  byId('settings').addEventListener('input', () => sessionStorage.setItem(KEY, JSON.stringify(values())));
  byId('reset').addEventListener('click', () => {
    fill({});
    sessionStorage.removeItem(KEY);
  });
}

/** Hides what the model cannot do.
 * @param {boolean} chat */
export function showSettingsFor(chat) {
  for (const field of FIELDS) byId(`set-${field.name}`).closest('.field').hidden = Boolean(field.chat) && !chat;
}

/** False, with the field focused, if one has a value that cannot be sent. */
export function settingsAreValid() {
  return byId('settings').reportValidity();
}

/** Marks the field that the server did not like.
 * @param {string} name */
export function blame(name) {
  const field = byId(`set-${name}`);
  if (field === null) return;
  field.setAttribute('aria-invalid', 'true');
  field.addEventListener('input', () => field.removeAttribute('aria-invalid'), { once: true });
}

/** @returns {{sampling: Record<string, number>, topLogprobs: number, thinking: boolean|null, system: string, seeded: boolean}} */
export function readSettings() {
  const all = values();
  /** @type {Record<string, number>} */
  const sampling = {};
  for (const { name, type } of FIELDS) {
    if (type === undefined && name !== 'top_logprobs' && all[name] !== '') sampling[name] = Number(all[name]);
  }
  return {
    sampling, topLogprobs: all.top_logprobs === '' ? 5 : Number(all.top_logprobs),
    thinking: all.thinking === '' ? null : all.thinking === 'true', system: all.system.trim(), seeded: all.seed !== '',
  };
}
