// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// The message field.

import { byId } from './dom.js';

export class Composer {
  /** @param {{send: (text: string) => void, stop: () => void}} actions */
  constructor({ send, stop }) {
    this.input = byId('input');
    const submit = () => {
      if (this.input.value.trim() !== '' && !this.running) send(this.input.value);
    };
    byId('composer').addEventListener('submit', (/** @type {Event} */ event) => {
      event.preventDefault();
      submit();
    });
    this.input.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      submit();
    });
    this.input.addEventListener('input', () => this.#fit());
    byId('stop').addEventListener('click', stop);
    this.running = false;
  }

  #fit() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 200)}px`;
  }

  /** @param {string} text */
  set(text) {
    this.input.value = text;
    this.#fit();
  }

  focus() { this.input.focus(); }

  /** @param {boolean} chat */
  describe(chat) {
    byId('input-label').textContent = chat ? 'Message' : 'Text to continue';
    this.input.placeholder = chat ? 'Message' : 'Text to continue';
  }

  /** @param {boolean} running */
  show(running) {
    const stopHadFocus = document.activeElement === byId('stop');
    const sendHadFocus = document.activeElement === byId('send');
    this.running = running;
    byId('send').hidden = running;
    byId('stop').hidden = !running;
    // The button that had the focus is gone.
    if (running && sendHadFocus) byId('stop').focus();
    if (!running && stopHadFocus) this.focus();
  }
}
