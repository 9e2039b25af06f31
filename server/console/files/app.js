// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// The console: which session is open, what runs, and what the buttons do. The parts know nothing of each other.

import * as api from './api.js';
import { Composer } from './composer.js';
import { ask, showHelp } from './dialogs.js';
import { announce, byId, counted, setText } from './dom.js';
import { enableSingleKeys, singleKeysEnabled, startKeys } from './keys.js';
import { hidePopover, startPopover } from './popover.js';
import { blame, readSettings, settingsAreValid, showSettingsFor, startSettings } from './settings.js';
import { StateView } from './state_view.js';
import * as store from './store.js';
import { nextTheme, startTheme } from './theme.js';
import { Thread } from './thread.js';
import { textOfKind } from './tokens.js';
import { nameOf, Tree } from './tree.js';
import { joinText, newTurn, noteBegin, positionOf, requestOf, runTurn } from './turn.js';

const CURRENT = 'rivulet.session';
const RECONNECT_MS = 1000;

/** @type {api.Model|null} */
let model = null;
/** @type {api.Session[]} */
let sessions = [];
/** @type {api.Session|null} the open one; null: the next message begins one */
let session = null;
/** @type {store.Turn[]} of the open session */
let turns = [];
/** @type {AbortController|null} of the turn that runs */
let running = null;
/** @type {StateView|null} */
let stateView = null;

const thread = new Thread({ retry, fork: (turn) => forkAt(turn.end, turns.indexOf(turn) + 1),
                            rewind: (turn) => rewindTo(turn.begin, turns.indexOf(turn)), rewindTo: (at) => rewindTo(at, 0), again });
const tree = new Tree({ open: openSession, rename: renameSession, remove: removeSession });
const composer = new Composer({ send, stop });

// ---- Showing.

const lastTurn = () => turns[turns.length - 1] ?? null;

function position() {
  const turn = lastTurn();
  return running !== null && turn !== null ? positionOf(turn) : session?.position ?? 0;
}

function showState() {
  const measured = session === null ? [] : store.measured(session.id);
  stateView?.show({ position: position(), turn: lastTurn(), running: running !== null, measured });
}

function showAll() {
  const name = session === null ? 'New session' : nameOf(session);
  setText(byId('title'), name);
  document.title = session === null ? 'Rivulet' : `${name} · Rivulet`;
  for (const id of ['fork', 'rename', 'delete']) byId(id).disabled = session === null || running !== null;
  composer.show(running !== null);
  thread.update(session, running !== null);
  tree.show(sessions, session?.id ?? null, api.MOST_SESSIONS);
  showState();
}

function showSession() {
  thread.show(turns, session, { name: model?.name ?? '', chat: model?.hasTemplate ?? false, running: running !== null });
  showAll();
}

/** @param {string} text empty: all is well */
function showConnection(text) {
  setText(byId('connection'), text);
}

/** What failed, in words; a connection that is lost is watched from now on.
 * @param {unknown} error */
function textOf(error) {
  if (!(error instanceof api.ApiError)) console.error(error);
  else if (error.notThere) reconnect();
  return error instanceof Error ? error.message : String(error);
}

/** @type {Promise<void>|null} */
let acting = null;
/**
 * Runs what a button does, and shows what fails. One action at a time: another one is dropped meanwhile, unless it `waits`.
 * @param {() => Promise<void>} action @param {boolean} [waits]
 */
async function attempt(action, waits = false) {
  while (acting !== null) {
    if (!waits) return;
    await acting;
  }
  showConnection('');
  byId('thread').setAttribute('aria-busy', 'true');
  acting = action().catch((error) => showConnection(textOf(error)));
  await acting;
  acting = null;
  byId('thread').setAttribute('aria-busy', 'false');
}

// ---- The connection.

let reconnecting = false;
async function reconnect() {
  if (reconnecting) return;
  reconnecting = true;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    if (await api.isReady()) break;
    showConnection('The server cannot be reached, or loads its model. Trying again …');
  }
  reconnecting = false;
  showConnection('');
  try {
    await begin();
    announce('The server is there.');
  } catch (error) {
    showConnection(textOf(error));
  }
}

/** What the page needs from the server before anything else. */
async function begin() {
  if (model === null) await loadModel();
  await refresh();
}

async function loadModel() {
  model = await api.getModel();
  const layers = model.mixers.length === 0 ? '' : ` · ${[...new Set(model.mixers)].join(' + ')}`;
  setText(byId('model'), `${model.name}${layers}`);
  stateView = new StateView(model);
  composer.describe(model.hasTemplate);
  showSettingsFor(model.hasTemplate);
}

// ---- Sessions.

/** Null if there is none.
 * @param {string} id */
function findSession(id) {
  return api.getSession(id).catch((error) => {
    if (error.status !== 404) throw error;
    return null;
  });
}

/** Asks the server what it holds, and shows it. */
async function refresh() {
  sessions = await api.listSessions();
  const id = session?.id;
  if (id !== undefined && running === null) {
    session = sessions.find((other) => other.id === id) ?? await findSession(id);
    if (session === null) showGone();
  }
  showAll();
}

function showGone() {
  session = null;
  turns = [];
  sessionStorage.removeItem(CURRENT);
  showSession();
  showConnection('The session is gone: it was deleted, or dropped after a time without turns.');
}

/** @param {api.Session|null} next */
function setSession(next) {
  session = next;
  turns = next === null ? [] : store.turnsOf(next.id);
  if (next === null) sessionStorage.removeItem(CURRENT);
  else sessionStorage.setItem(CURRENT, next.id);
}

/** @param {string} id */
function openSession(id) {
  if (running !== null) return announce('An answer runs: stop it first.');
  closePanels();
  return attempt(async () => {
    setSession(await api.getSession(id));
    showSession();
    byId('title').focus({ preventScroll: true });
  });
}

function beginSession() {
  if (running !== null) return announce('An answer runs: stop it first.');
  closePanels();
  setSession(null);
  showSession();
  composer.focus();
}

/** @param {number|null} at @param {number} [kept] the turns before it */
function forkAt(at, kept = turns.length) {
  if (session === null || running !== null || at === null) return;
  const from = session;
  return attempt(async () => {
    const fork = await api.forkSession(from.id, at, `${nameOf(from).replace(/ \(fork.*\)$/, '')} (fork)`);
    store.copyPast(from.id, fork.id, at, kept);
    setSession(fork);
    await refresh();
    showSession();
    announce(`Forked at ${counted(at, 'token')}. The fork is open.`);
    composer.focus();
  });
}

/** @param {number} at @param {number} kept the turns before it */
function rewindTo(at, kept) {
  if (session === null || running !== null) return;
  return attempt(async () => {
    await rewind(at, kept);
    announce(`Rewound to ${counted(at, 'token')}.`);
    composer.focus();
  });
}

/** @param {number} at @param {number} kept */
async function rewind(at, kept) {
  const { id } = /** @type {api.Session} */ (session);
  const before = turns.slice(0, kept);
  const rewound = await api.rewindSession(id, at);
  store.setTurns(id, before);
  setSession(rewound);
  await refresh();
  showSession();
}

/** @param {store.Turn} turn */
const mayRewind = (turn) => session?.kept.includes(turn.begin) ?? false;

function undo() {
  const turn = lastTurn();
  if (turn === null || session === null || running !== null) return;
  if (!mayRewind(turn)) return announce('The server no longer keeps where this turn began.');
  composer.set(turn.input.trimStart());
  return rewindTo(turn.begin, turns.length - 1);
}

/** @param {string} id */
function renameSession(id) {
  const known = sessions.find((other) => other.id === id);
  return attempt(async () => {
    const name = await ask({ title: 'Rename the session', label: 'Name', value: known?.name ?? '', ok: 'Rename' });
    if (name === null) return;
    const renamed = await api.renameSession(id, name);
    if (session?.id === id) session = renamed;
    await refresh();
  });
}

/** @param {string} id */
function removeSession(id) {
  const known = sessions.find((other) => other.id === id);
  return attempt(async () => {
    const text = `${known ? nameOf(known) : id} with ${counted(known?.position ?? 0, 'token')}. Its forks stay.`;
    if (running !== null && session?.id === id) return announce('An answer runs: stop it first.');
    if (await ask({ title: 'Delete this session?', text, ok: 'Delete' }) === null) return;
    await api.deleteSession(id);
    store.forget(id);
    if (session?.id === id) setSession(null);
    await refresh();
    showSession();
  });
}

// ---- Turns.

/** The session of a message: the open one, or a new one that has its first words as a name.
 * @param {string} text */
async function sessionFor(text) {
  if (session !== null) return;
  const words = text.trim().replace(/\s+/g, ' ');
  const name = words.length > 40 ? `${words.slice(0, 39).replace(/[\uD800-\uDBFF]$/, '')}…` : words;
  setSession(await api.createSession(name));
}

/** @param {string} text */
function send(text) {
  if (running !== null || !settingsAreValid()) return;
  if (model === null) return attempt(begin);  // for example, there was no token
  composer.set('');
  return attempt(async () => {
    try {
      await sessionFor(text);
    } catch (error) {
      composer.set(text);
      throw error;
    }
    const before = lastTurn();
    const said = before === null ? '' : before.input + textOfKind(before.pieces, 'answer');
    const input = model?.hasTemplate ? text : joinText(said, text);
    await run(newTurn(input, session?.position ?? 0, model?.hasTemplate ?? false));
  }, true);
}

/** @param {store.Turn} turn */
async function run(turn) {
  const { id } = /** @type {api.Session} */ (session);
  const before = [...turns];
  running = new AbortController();
  turns.push(turn);
  thread.add(turn);
  showAll();
  try {
    await runTurn(turn, id, requestOf(turn, before, readSettings()), running.signal, (pieces) => {
      thread.append(pieces);
      showState();
    });
    announce(`The answer has ${counted(turn.tokens, 'token')}.`);
  } catch (error) {
    if (running.signal.aborted) turn.stopped = true;
    else turn.error = textOf(error);
    if (error instanceof api.ApiError) blame(error.param);
  }
  noteBegin(turn, before);
  await settle(turn, id);
}

/** After a turn: where the server says that the session is.
 * @param {store.Turn} turn @param {string} id */
async function settle(turn, id) {
  try {
    session = await sessionAtRest(id);
    // A turn that failed before it began has left the session as it was.
    if (session !== null && (session.position > turn.begin || turn.error === null)) turn.end = session.position;
  } finally {
    running = null;
    showAll();
  }
  if (session !== null) {
    store.measure(session);
    store.save();
    return refresh();
  }
  composer.set(turn.input.trimStart());
  showGone();
}

/** A turn that was stopped may take a moment to end on the server. Null: the session is gone.
 * @param {string} id */
async function sessionAtRest(id) {
  for (let wait = 20; ; wait *= 2) {
    const found = await findSession(id);
    if (!found?.busy || wait > 2000) return found;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function stop() {
  if (running === null) return false;
  running.abort();
  announce('Stopped.');
  return true;
}

function retry() {
  const turn = lastTurn();
  if (turn === null || session === null || running !== null) return;
  if (!mayRewind(turn)) return announce('The server no longer keeps where this turn began.');
  return attempt(async () => {
    await rewind(turn.begin, turns.length - 1);
    if (readSettings().seeded) announce('The seed is set, so the answer is the same again.');
    await run(newTurn(turn.input, turn.begin, turn.chat));
  });
}

/** Sends a turn again that failed. */
function again() {
  const turn = lastTurn();
  if (turn === null || running !== null) return;
  if (turn.end !== null && turn.end > turn.begin) return retry();
  return attempt(async () => {
    turns.pop();
    showSession();
    await sessionFor(turn.input);
    await run(newTurn(turn.input, session?.position ?? 0, turn.chat));
  });
}

// ---- The page.

/** On narrow screens the sides open over the conversation.
 * @param {'sessions'|'panel'} name @param {boolean} [open] */
function togglePanel(name, open = !byId(name).classList.contains('open')) {
  closePanels();
  byId(name).classList.toggle('open', open);
  byId(`open-${name}`).setAttribute('aria-expanded', String(open));
}

/** @returns {boolean} whether one was open */
function closePanels() {
  let any = false;
  for (const name of ['sessions', 'panel']) {
    any ||= byId(name).classList.contains('open');
    byId(name).classList.remove('open');
    byId(`open-${name}`).setAttribute('aria-expanded', 'false');
  }
  return any;
}

function help() {
  const clearToken = api.bearerToken() === '' ? null : () => api.setBearerToken('');
  showHelp({ enabled: singleKeysEnabled(), toggle: enableSingleKeys, clearToken });
}

function shade() {
  const shaded = byId('thread').classList.toggle('shaded');
  byId('shade').setAttribute('aria-pressed', String(shaded));
}

function startButtons() {
  byId('new-session').addEventListener('click', beginSession);
  byId('fork').addEventListener('click', () => forkAt(session?.position ?? null));
  byId('rename').addEventListener('click', () => session && renameSession(session.id));
  byId('delete').addEventListener('click', () => session && removeSession(session.id));
  byId('help').addEventListener('click', help);
  byId('shade').addEventListener('click', shade);
  for (const name of /** @type {const} */ (['sessions', 'panel'])) byId(`open-${name}`).addEventListener('click', () => togglePanel(name));
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && model !== null && running === null) attempt(refresh);
  });
}

function shortcuts() {
  startKeys({
    Escape: () => hidePopover() || stop() || closePanels(),
    '/': () => composer.focus(), n: beginSession, f: () => void forkAt(session?.position ?? null), u: () => void undo(), r: () => void retry(),
    s: () => { togglePanel('sessions', true); tree.focus(); }, a: () => thread.focusLastAnswer(),
    p: () => { togglePanel('panel', true); byId('settings').querySelector('input').focus(); }, t: nextTheme, x: shade, '?': help,
  });
}

async function askForToken() {
  const text = 'The server asks for an access token. It is kept in this tab until the tab is closed.';
  const token = await ask({ title: 'Access token', text, label: 'Token', type: 'password', ok: 'Use' });
  if (!token) return false;
  api.setBearerToken(token.trim());
  return true;
}

async function start() {
  startTheme();
  startSettings();
  startPopover();
  startButtons();
  shortcuts();
  api.onUnauthorized(askForToken);
  await attempt(async () => {
    await loadModel();
    const id = sessionStorage.getItem(CURRENT);
    if (id !== null) setSession(await findSession(id));
    await refresh();
  });
  showSession();
  composer.focus();
  performance.mark('rivulet-ready');
}

start();
