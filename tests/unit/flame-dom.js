// SPDX-License-Identifier: GPL-2.0-or-later
// Runs the script of a flame graph against a document made of little more than attributes, and checks what it
// does with the frames. Usage: node flame-dom.js FILE.svg; the frames must be those of test-export.c.
'use strict';
const fs = require('fs'), vm = require('vm'), assert = require('assert');
const text = fs.readFileSync(process.argv[2], 'utf8');

function unescape(s) {
	return s.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"')
		.replace(/&#39;/g, "'").replace(/&amp;/g, '&');
}

class Element {
	constructor(attributes, content) {
		this.attributes = attributes || {};
		this.textContent = content || '';
		this.style = {};
		this.classes = {};
		this.listeners = {};
		this.children = {};
		this.classList = { toggle: (c, on) => { this.classes[c] = !!on; } };
	}
	getAttribute(n) { return this.attributes[n]; }
	setAttribute(n, v) { this.attributes[n] = String(v); }
	addEventListener(n, f) { this.listeners[n] = f; }
	querySelector(n) { return this.children[n] || null; }
	appendChild(e) { this.children.text = e; }
}

function attributes(s) {
	const a = {};
	for (const m of s.matchAll(/([a-zA-Z-]+)="([^"]*)"/g))
		a[m[1]] = unescape(m[2]);
	return a;
}

const svg = new Element(attributes(text.match(/<svg [^>]*>/)[0]));
const frames = [...text.matchAll(/<g class="f [a-z]\d" ([^>]*)><title>([^<]*)<\/title><rect ([^>]*)\/>(?:<text ([^>]*)>([^<]*)<\/text>)?<\/g>/g)]
	.map(m => {
		const g = new Element(attributes(m[1]));
		g.children.title = new Element({}, unescape(m[2]));
		g.children.rect = new Element(attributes(m[3]));
		if (m[4])
			g.children.text = new Element(attributes(m[4]), unescape(m[5]));
		return g;
	});
svg.querySelectorAll = () => frames;
const ids = { flame: svg, details: new Element(), matched: new Element(), search: new Element(), reset: new Element() };
const window = { innerWidth: 1020, listeners: {}, answer: null,
		 addEventListener(n, f) { this.listeners[n] = f; },
		 matchMedia: () => ({ matches: true }), prompt() { return this.answer; } };
const document = { getElementById: id => ids[id] || null, createElementNS: () => new Element(),
		   documentElement: svg };
vm.runInNewContext(text.match(/<!\[CDATA\[([^]*)\]\]>/)[1], { window, document });

const named = n => frames.find(f => f.children.title.textContent.split('\n')[0] === n);
const width = f => f.style.display === 'none' ? 0 : +f.children.rect.attributes.width;
const x = f => +f.children.rect.attributes.x;
const near = (a, b) => assert(Math.abs(a - b) < 0.01, a + ' is not ' + b);

// The window is 1020 wide: 1000 for "all". The frames: p (all) ; a 600 (a1 400, self 200), b 300, c 100.
near(width(named('all')), 1000);
near(width(named('a')), 600);
near(width(named('a1')), 400);
near(x(named('b')), 10 + 600);
near(x(named('c')), 10 + 900);
assert.strictEqual(svg.attributes['data-theme'], 'dark');

// Into "a": it and what is above it fill the width, its child is scaled, the others are gone.
named('a').listeners.click();
near(width(named('all')), 1000);
near(width(named('a')), 1000);
near(width(named('a1')), 1000 * 400 / 600);
assert.strictEqual(width(named('b')), 0);
assert(named('all').classes.off && !named('a').classes.off);

// A search counts a match within a match once, and within what is zoomed.
window.answer = '^a';
ids.search.listeners.click();
assert(named('a').classes.hit && named('a1').classes.hit);
assert.strictEqual(ids.matched.textContent, 'matched 100.00 %');
ids.reset.listeners.click();
near(width(named('a')), 600);
assert(!named('a').classes.hit);
window.answer = 'b|c|a1';
ids.search.listeners.click();
assert.strictEqual(ids.matched.textContent, 'matched 80.00 %');
window.answer = '('; // no expression: found as it stands
ids.search.listeners.click();
assert.strictEqual(ids.matched.textContent, 'matched 0.00 %');

named('b').listeners.mouseover();
assert(ids.details.textContent.startsWith('b  '));
window.listeners.keydown({ key: 'Escape', target: {} });
assert.strictEqual(ids.matched.textContent, '');
window.innerWidth = 520;
window.listeners.resize();
near(width(named('a')), 300);
