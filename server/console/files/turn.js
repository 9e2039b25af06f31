// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// One turn: the request to the server, and what its stream adds to the turn.

import { generate } from './api.js';
import { UNKNOWN } from './store.js';
import { Aligner, textOfKind } from './tokens.js';

/** @param {string} input @param {number} begin the session's tokens @param {boolean} chat @returns {import('./store.js').Turn} */
export function newTurn(input, begin, chat) {
  return { input, chat, begin, end: null, position: null, pieces: [], tokens: 0, guessed: 0, usage: null, finish: null, error: null,
           stopped: false, firstMs: null, totalMs: null };
}

/** Models without a chat template go on with the text, so a turn that begins a word needs a space.
 * @param {string} before @param {string} input */
export function joinText(before, input) {
  const needsSpace = before !== '' && input !== '' && !/[\s([{-]$/.test(before) && !/^[\s.,;:!?)\]}]/.test(input);
  return needsSpace ? ` ${input}` : input;
}

/**
 * What was said so far, for a session that does not hold it.
 * @param {import('./store.js').Turn[]} turns @returns {{role: string, content: string}[]}
 */
function messagesOf(turns) {
  return turns.filter((turn) => turn.error === null).flatMap((turn) => [{ role: 'user', content: turn.input }, { role: 'assistant', content: textOfKind(turn.pieces, 'answer') }]);
}

/**
 * @param {import('./store.js').Turn} turn @param {import('./store.js').Turn[]} before
 * @param {ReturnType<import('./settings.js').readSettings>} settings
 * @returns {{path: string, body: object}}
 */
export function requestOf(turn, before, { sampling, topLogprobs, thinking, system }) {
  const common = { ...sampling, return_token_ids: true };
  if (!turn.chat) return { path: '/v1/completions', body: { ...common, prompt: turn.input, logprobs: topLogprobs } };
  const messages = [...(turn.begin === 0 ? messagesOf(before) : []), { role: 'user', content: turn.input }];
  if (turn.begin === 0 && system !== '') messages.unshift({ role: 'system', content: system });
  const body = { ...common, messages, logprobs: true, top_logprobs: topLogprobs };
  return { path: '/v1/chat/completions', body: thinking === null ? body : { ...body, chat_template_kwargs: { enable_thinking: thinking } } };
}

/** @param {any} usage @returns {import('./store.js').Usage} */
function toUsage(usage) {
  const guesses = usage.completion_tokens_details ?? {};
  return { prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0, completion: usage.completion_tokens,
           accepted: guesses.accepted_prediction_tokens ?? 0, rejected: guesses.rejected_prediction_tokens ?? 0 };
}

/**
 * Runs a turn of a session and fills it in. `show(pieces)` is called for what each chunk adds. Ends as generate does.
 * @param {import('./store.js').Turn} turn @param {string} session @param {{path: string, body: object}} request
 * @param {AbortSignal} signal @param {(pieces: import('./tokens.js').Piece[]) => void} show
 */
export async function runTurn(turn, session, request, signal, show) {
  const aligner = new Aligner();
  const started = performance.now();
  try {
    for await (const chunk of generate(request.path, request.body, session, signal)) {
      if (chunk.usage) turn.usage = toUsage(chunk.usage);
      const choice = chunk.choices[0];
      if (choice === undefined) continue;
      turn.firstMs ??= performance.now() - started;
      turn.position ??= choice.position ?? null;
      turn.tokens += choice.token_ids?.length ?? 0;
      turn.guessed += choice.guessed_tokens?.length ?? 0;
      turn.finish = choice.finish_reason ?? turn.finish;
      const pieces = aligner.push(choice);
      turn.pieces.push(...pieces);
      show(pieces);
    }
  } finally {
    turn.totalMs = performance.now() - started;
  }
}

const SHORTEST_MS = 50;  // that a speed is said of

/** Tokens a second after the first; null if there were too few.
 * @param {import('./store.js').Turn} turn */
export function speedOf({ tokens, firstMs, totalMs }) {
  if (firstMs === null || totalMs === null || totalMs - firstMs < SHORTEST_MS) return null;
  return (1000 * (tokens - 1)) / (totalMs - firstMs);
}

/**
 * Where the turn began, once it has ended: at 0 if the chat template rewrote what was said before, which was then its prompt too. No place
 * before it is left then; and if this tab did not see what was said, the turn cannot be taken back.
 * @param {import('./store.js').Turn} turn @param {import('./store.js').Turn[]} before
 */
export function noteBegin(turn, before) {
  if (turn.position === null || turn.usage === null) return;
  const begin = turn.position - turn.usage.prompt;
  const anew = begin === 0 && turn.begin > 0;
  turn.begin = anew && before[0]?.begin !== 0 ? UNKNOWN : begin;
  for (const earlier of anew ? before : []) {
    if (earlier.begin > 0) earlier.begin = UNKNOWN;
    earlier.end = null;
  }
}

/** Where the context ends now, as far as it is known.
 * @param {import('./store.js').Turn} turn */
export function positionOf(turn) {
  return (turn.position ?? turn.begin) + turn.tokens;
}
