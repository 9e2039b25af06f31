// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Server-sent events out of bytes that arrive in pieces, cut anywhere: within a line end, and within a character.

/** The data of events, in order; comments and other fields are skipped. */
export class SseParser {
  constructor() {
    this.decoder = new TextDecoder('utf-8');
    this.rest = '';  // of a line that is not whole
    /** @type {string[]} */
    this.data = [];  // lines of an event that is not whole
  }

  /**
   * @param {Uint8Array} bytes
   * @returns {string[]} the data of the events that are now whole
   */
  push(bytes) {
    return this.#lines(this.decoder.decode(bytes, { stream: true }));
  }

  /** @param {string} text @returns {string[]} */
  #lines(text) {
    const events = [];
    // A line end may be \n, \r\n or \r. A \r at the very end waits for a \n that may follow.
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('data:')) {
        this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
      } else if (line === '' && this.data.length > 0) {
        events.push(this.data.join('\n'));
        this.data = [];
      }
    }
    return events;
  }
}
