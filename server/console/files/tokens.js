// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Which tokens made which part of a reply's text. The text comes in whole characters, with marks of thinking and stop strings taken out,
// while a token may hold a part of a character, or a mark. So a part of the text may have several tokens.

/**
 * @typedef {{text: string, logprob: number}} Candidate
 * @typedef {{text: string, logprob: number|null, top: Candidate[], id: number|null, guessed: boolean}} Token
 * @typedef {{kind: 'thinking'|'answer', text: string, tokens: Token[]}} Piece
 */

const decoder = new TextDecoder('utf-8');

/** @param {number[]|null|undefined} bytes @param {string} fallback */
function textOf(bytes, fallback) {
  return bytes && bytes.length > 0 ? decoder.decode(new Uint8Array(bytes)) : fallback;
}

/** @param {any} entry of chat's logprobs.content */
function chatToken(entry) {
  const top = (entry.top_logprobs ?? []).map((/** @type {any} */ other) => ({ text: textOf(other.bytes, other.token), logprob: other.logprob }));
  return { text: textOf(entry.bytes, entry.token), logprob: entry.logprob, top };
}

/** @param {any} logprobs of completions @param {number} i */
function completionToken(logprobs, i) {
  const top = Object.entries(logprobs.top_logprobs?.[i] ?? {}).map(([text, logprob]) => ({ text, logprob: Number(logprob) }));
  top.sort((a, b) => b.logprob - a.logprob);
  return { text: logprobs.tokens[i], logprob: logprobs.token_logprobs[i], top };
}

/** The tokens of a chunk's choice.
 * @param {any} choice @returns {Token[]} */
export function tokensOf(choice) {
  const ids = choice.token_ids ?? [];
  const guessed = new Set(choice.guessed_tokens ?? []);
  const entries = choice.logprobs?.content;
  return ids.map((/** @type {number} */ id, /** @type {number} */ i) => {
    /** @type {{text: string, logprob: number|null, top: Candidate[]}} */
    let known = { text: '', logprob: null, top: [] };
    if (entries?.[i]) known = chatToken(entries[i]);
    else if (choice.logprobs?.tokens?.[i] !== undefined) known = completionToken(choice.logprobs, i);
    return { ...known, id, guessed: guessed.has(i) };
  });
}

/** Divides the text of one choice among its tokens, chunk by chunk. */
export class Aligner {
  constructor() {
    /** @type {Token[]} */
    this.waiting = [];  // whose text has not come yet, or never comes
  }

  /** @param {any} choice of a chunk @returns {Piece[]} */
  push(choice) {
    this.waiting.push(...tokensOf(choice));
    return [...this.#divide('thinking', choice.delta?.reasoning_content ?? ''),
            ...this.#divide('answer', choice.delta?.content ?? choice.text ?? '')];
  }

  /** @param {'thinking'|'answer'} kind @param {string} text */
  #divide(kind, text) {
    /** @type {Piece[]} */
    const pieces = [];
    /** @type {Token[]} */
    let skipped = [];
    while (text !== '' && this.waiting.length > 0) {
      const token = /** @type {Token} */ (this.waiting.shift());
      skipped.push(token);
      if (token.text === '' || !text.startsWith(token.text)) continue;
      pieces.push({ kind, text: token.text, tokens: skipped });
      text = text.slice(token.text.length);
      skipped = [];
    }
    if (text !== '') pieces.push({ kind, text, tokens: skipped });
    else this.waiting.unshift(...skipped);
    return pieces;
  }
}

/** Of a piece with several tokens, or the probability of one; null if unknown.
 * @param {Piece} piece */
export function probabilityOf(piece) {
  const known = piece.tokens.filter((token) => token.logprob !== null);
  if (known.length === 0) return null;
  return Math.exp(known.reduce((sum, token) => sum + /** @type {number} */ (token.logprob), 0));
}

/** The same text without tokens, as few pieces as can be.
 * @param {Piece[]} pieces @returns {Piece[]} */
export function plainPieces(pieces) {
  /** @type {Piece[]} */
  const whole = [];
  for (const { kind, text } of pieces) {
    const last = whole[whole.length - 1];
    if (last?.kind === kind) last.text += text;
    else whole.push({ kind, text, tokens: [] });
  }
  return whole;
}

/** The text of one kind.
 * @param {Piece[]} pieces @param {'thinking'|'answer'} kind */
export function textOfKind(pieces, kind) {
  return pieces.filter((piece) => piece.kind === kind).map((piece) => piece.text).join('');
}
