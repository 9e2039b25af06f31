// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// What was said in each session. The server keeps a session's state and its tokens, not its text, so this tab remembers the text until it
// is closed; probabilities of tokens only until it is reloaded.

import { plainPieces } from './tokens.js';

/**
 * One turn: what was sent, and what came back.
 * `begin` and `end` are tokens of the session's context. begin is UNKNOWN and end null where no such place is left: the turn failed, or
 * the chat template rewrote it when a later turn began anew with all that was said before as its prompt.
 * @typedef {{input: string, chat: boolean, begin: number, end: number|null, position: number|null, pieces: import('./tokens.js').Piece[],
 *            tokens: number, guessed: number, usage: Usage|null, finish: string|null, error: string|null, stopped: boolean,
 *            firstMs: number|null, totalMs: number|null}} Turn
 * @typedef {{prompt: number, cached: number, completion: number, accepted: number, rejected: number}} Usage
 * @typedef {{position: number, bytes: number}} Measured  the state's size, as the server said it
 */

export const UNKNOWN = -1;

const KEY = 'rivulet.transcripts';
const MOST_CHARACTERS = 2_000_000;  // of the 5 million that browsers keep

/** @type {Map<string, Turn[]>} */
const transcripts = new Map(load());
/** @type {Map<string, Measured[]>} */
const measurements = new Map();

function load() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
  } catch {
    return [];
  }
}

/** The session's turns, oldest first; the caller may change them, and then saves.
 * @param {string} id */
export function turnsOf(id) {
  let turns = transcripts.get(id);
  if (turns === undefined) transcripts.set(id, (turns = []));
  return turns;
}

/** @param {string} id @param {Turn[]} turns */
export function setTurns(id, turns) {
  transcripts.set(id, turns);
  save();
}

/** @param {string} id */
export function forget(id) {
  transcripts.delete(id);
  measurements.delete(id);
  save();
}

export function save() {
  const entries = [...transcripts].map(([id, turns]) => [id, turns.map((turn) => ({ ...turn, pieces: plainPieces(turn.pieces) }))]);
  for (;;) {
    const text = JSON.stringify(entries);
    try {
      if (text.length > MOST_CHARACTERS && entries.length > 1) throw new Error('too long');
      return sessionStorage.setItem(KEY, text);
    } catch {
      if (entries.length === 0) return;
      entries.shift();  // that which was begun first
    }
  }
}

/** @param {string} id */
export function measured(id) { return measurements.get(id) ?? []; }

/** Notes what the server says of a session after a turn. (A fork and a rewound session hold less until their next one.)
 * @param {import('./api.js').Session} session */
export function measure(session) {
  if (session.busy || session.stateBytes === 0) return;
  const known = measured(session.id).filter((point) => point.position < session.position);
  measurements.set(session.id, [...known, { position: session.position, bytes: session.stateBytes }]);
}

/** A fork has its parent's past.
 * @param {string} from @param {string} to @param {number} position @param {number} turns how many */
export function copyPast(from, to, position, turns) {
  transcripts.set(to, structuredClone(turnsOf(from).slice(0, turns)));
  measurements.set(to, measured(from).filter((point) => point.position <= position));
  save();
}
