// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Light or dark: as the system has it, until the user says otherwise.

import { byId } from './dom.js';

const KEY = 'rivulet.theme';
const CHOICES = /** @type {const} */ (['system', 'light', 'dark']);
const LABELS = { system: 'Auto', light: 'Light', dark: 'Dark' };

/** @returns {'system'|'light'|'dark'} */
function chosen() {
  const value = localStorage.getItem(KEY);
  return value === 'light' || value === 'dark' ? value : 'system';
}

function show() {
  const theme = chosen();
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId('theme').textContent = LABELS[theme];
  byId('theme').setAttribute('aria-label', `Theme: ${LABELS[theme]}. Change it`);
}

export function nextTheme() {
  localStorage.setItem(KEY, CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
  show();
}

export function startTheme() {
  show();
  byId('theme').addEventListener('click', nextTheme);
}
