// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
// Elements are made here and nowhere from markup, so text of a model is never read as HTML.

/**
 * An element with attributes and children. `on*` attributes are listeners; `true` sets an empty attribute, and null, undefined and
 * false none. A child may be a node, a text, or null.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string|null|undefined)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} tag
 * @param {Record<string, string|number>} [attributes]
 * @param {...(Node|string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return /** @type {SVGElement} */ (element);
}

/**
 * The element with this id, which index.html has.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  return document.getElementById(id);
}

/** Sets text only where it changes, so that a screen reader is not told again.
 * @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const COUNT = new Intl.NumberFormat('en');
/** 12,345
 * @param {number} value */
export const count = (value) => COUNT.format(value);

/** "1 token", "2 tokens"
 * @param {number} value @param {string} noun */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

/** 1.20 MiB
 * @param {number} value */
export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; ++unit) value /= 1024;
  return `${unit === 0 ? value : value.toPrecision(value < 10 ? 3 : 4)} ${units[unit]}`;
}

/** 41 %, 0.03 %, < 0.01 %
 * @param {number} share within [0, 1] */
export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return '< 0.01 %';
  return `${value >= 10 || value === 0 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toPrecision(1)} %`;
}

let speaker = 0;
/** Says something to screen readers, once they have said what they are saying.
 * @param {string} text */
export function announce(text) {
  // Of two regions one is emptied, so that the same text is said again.
  speaker = 1 - speaker;
  byId(`said-${speaker}`).textContent = text;
  byId(`said-${1 - speaker}`).textContent = '';
}
