// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// The server's HTTP API. Every failure is an ApiError, whose text can be shown.

import { SseParser } from './sse.js';

const TOKEN = 'rivulet.token';

export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} [status] 0: the server could not be reached
   * @param {string} [param] the field that is wrong
   * @param {number} [retryAfterMs] when the server wants to be asked again; 0: it does not say
   */
  constructor(message, status = 0, param = '', retryAfterMs = 0) {
    super(message);
    this.status = status;
    this.param = param;
    this.retryAfterMs = retryAfterMs;
  }
  /** It cannot be reached, or does not serve now. */
  get notThere() { return this.status === 0 || this.status === 503; }
}

/** Kept by this tab until it is closed.
 * @returns {string} */
export function bearerToken() { return sessionStorage.getItem(TOKEN) ?? ''; }
/** @param {string} token empty: none */
export function setBearerToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

/** Called for a 401: asks for a token. False if there is none.
 * @type {() => Promise<boolean>} */
let askForToken = async () => false;
/** @param {() => Promise<boolean>} ask */
export function onUnauthorized(ask) { askForToken = ask; }

/** @param {Response} response */
async function errorOf(response) {
  const { error } = await response.json().catch(() => ({}));
  const message = error?.message ?? `the server answered ${response.status} ${response.statusText}`;
  return new ApiError(message, response.status, error?.param ?? '', Number(response.headers.get('retry-after-ms')));
}

/** @param {string} path @param {RequestInit} init */
async function send(path, init) {
  const token = bearerToken();
  const headers = { ...init.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  try {
    return await fetch(path, { ...init, headers, cache: 'no-store' });
  } catch (error) {
    if (/** @type {Error} */ (error).name === 'AbortError') throw error;
    throw new ApiError('The server cannot be reached.');
  }
}

const LONGEST_WAIT_MS = 5000;  // in all

/**
 * Tries again where the server says so: a session is busy, the queue is full.
 * @param {string} method @param {string} path @param {object} [body] @param {Record<string, string>} [headers] @param {AbortSignal} [signal]
 */
async function request(method, path, body, headers, signal) {
  /** @type {Record<string, string>} */
  const json = body === undefined ? {} : { 'content-type': 'application/json' };
  const init = { method, signal, headers: { ...json, ...headers }, body: body === undefined ? undefined : JSON.stringify(body) };
  const end = performance.now() + LONGEST_WAIT_MS;
  for (;;) {
    const response = await send(path, init);
    if (response.ok) return response;
    const error = await errorOf(response);
    if (error.status === 401 && await askForToken()) continue;
    if (!(error.retryAfterMs > 0) || performance.now() + error.retryAfterMs > end) throw error;
    await new Promise((resolve) => setTimeout(resolve, error.retryAfterMs));
  }
}

/** @param {string} method @param {string} path @param {object} [body] */
async function json(method, path, body) {
  const response = await request(method, path, body);
  try {
    return await response.json();
  } catch {
    throw new ApiError('The connection was lost before the answer was whole.');
  }
}

// ---- The model.

/**
 * Numbers of the server's model.
 * @typedef {{name: string, architecture: string, hasTemplate: boolean, hasTokenizer: boolean, mixers: string[], parameters: number,
 *            foldInterval: number, stateBytes: number, bytesPerToken: number, levels: number, levelBytes: number, maxContext: number,
 *            speculate: string, stateDtype: string, weightDtype: string}} Model
 */

/** @returns {Promise<Model>} */
export async function getModel() {
  const [entry] = (await json('GET', '/v1/models')).data;
  const model = entry.rivulet;
  return {
    name: entry.id, architecture: model.architecture, hasTemplate: model.has_chat_template, hasTokenizer: model.has_tokenizer,
    mixers: model.layer_mixers, parameters: Number(model.parameters), foldInterval: model.fold_interval,
    stateBytes: Number(model.state_bytes_per_session), bytesPerToken: Number(model.state_bytes_per_token), levels: model.levels,
    levelBytes: Number(model.level_bytes), maxContext: Number(model.max_context), speculate: model.speculate,
    stateDtype: model.state_dtype, weightDtype: model.weight_dtype,
  };
}

// ---- Sessions.

/**
 * @typedef {{id: string, name: string, position: number, stateBytes: number, pages: number, kept: number[], keptBytes: number,
 *            forkedFrom: string, forkedAt: number, busy: boolean, created: number, lastUsed: number}} Session
 */

/** @param {any} proto @returns {Session} */
function toSession(proto) {
  return {
    id: proto.id, name: proto.name, position: Number(proto.position), stateBytes: Number(proto.state_bytes), pages: Number(proto.pages),
    kept: proto.kept_positions.map(Number), keptBytes: Number(proto.kept_bytes), forkedFrom: proto.forked_from,
    forkedAt: Number(proto.forked_at), busy: proto.busy, created: Number(proto.created_unix_ms), lastUsed: Number(proto.last_used_unix_ms),
  };
}

/** @param {string} id */
const sessionPath = (id) => `/v1/sessions/${encodeURIComponent(id)}`;

export const MOST_SESSIONS = 1000;
/** The first of them, at most MOST_SESSIONS.
 * @returns {Promise<Session[]>} */
export async function listSessions() {
  return (await json('GET', `/v1/sessions?page_size=${MOST_SESSIONS}`)).sessions.map(toSession);
}
/** @param {string} name */
export async function createSession(name) { return toSession(await json('POST', '/v1/sessions', { name })); }
/** @param {string} id */
export async function getSession(id) { return toSession(await json('GET', sessionPath(id))); }
/** @param {string} id @param {string} name */
export async function renameSession(id, name) { return toSession(await json('PATCH', sessionPath(id), { name })); }
/** @param {string} id */
export async function deleteSession(id) { await json('DELETE', sessionPath(id)); }
/** @param {string} id @param {number} position @param {string} name */
export async function forkSession(id, position, name) {
  return toSession(await json('POST', `${sessionPath(id)}/fork`, { position, name }));
}
/** @param {string} id @param {number} position */
export async function rewindSession(id, position) { return toSession(await json('POST', `${sessionPath(id)}/rewind`, { position })); }

/** Whether the server takes work now; false while it loads, and while it cannot be reached. */
export async function isReady() {
  try {
    return (await fetch('/readyz', { cache: 'no-store' })).ok;
  } catch {
    return false;
  }
}

// ---- Generation.

/**
 * The chunks of a streamed reply. It ends with ApiError unless the reply is whole, and with AbortError where the signal stops it.
 * @param {string} path @param {object} body @param {string} session @param {AbortSignal} signal
 * @returns {AsyncGenerator<any>}
 */
export async function* generate(path, body, session, signal) {
  const response = await request('POST', path, { ...body, stream: true, stream_options: { include_usage: true } }, { 'x-session-id': session }, signal);
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const parser = new SseParser();
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      throw new ApiError('The connection was lost while the answer was on its way.');
    }
    if (piece.done) throw new ApiError('The server ended the answer before it was whole.');
    for (const data of parser.push(piece.value)) {
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, 500);
      yield chunk;
    }
  }
}
