// The flame graph's behaviour, the same in the SVG and in the HTML page: zoom, search, details, theme.
// Frames come in preorder; each carries its total in data-v and, in its <title>, the name on the first line and
// the facts on the second. Without this script the picture is complete, only still.
(function () {
'use strict';
var svg = document.getElementById('flame');
var page = document.getElementById('filter') ? document : null; // the HTML page has controls of its own
var NS = 'http://www.w3.org/2000/svg';
var ROW = +svg.getAttribute('data-row'), MARGIN = +svg.getAttribute('data-margin');
var CHAR = 7.25, MIN_WIDTH = 0.2;
var frames = [], zoomed = 0, pattern = null, width = 0;
var details = document.getElementById('details'), matched = document.getElementById('matched');

function read() {
	var cursor = [], open = [];
	Array.prototype.forEach.call(svg.querySelectorAll('g.f'), function (g, i) {
		var title = g.querySelector('title').textContent, cut = title.indexOf('\n');
		var f = { g: g, rect: g.querySelector('rect'), text: g.querySelector('text'),
			  depth: +g.getAttribute('data-d'), v: +g.getAttribute('data-v'),
			  name: title.slice(0, cut), facts: title.slice(cut + 1) };
		f.start = cursor[f.depth] || 0;
		cursor[f.depth] = f.start + f.v;
		cursor[f.depth + 1] = f.start;
		for (var d = f.depth; d < open.length; d++)
			open[d].end = i;
		open.length = f.depth;
		open.push(f);
		f.parent = open[f.depth - 1] || null;
		frames.push(f);
	});
	open.forEach(function (f) { f.end = frames.length; });
}

function place(f, x, w) {
	var fits = Math.floor((w - 6) / CHAR), name = f.name;
	var shown = w >= MIN_WIDTH;
	f.g.style.display = shown ? '' : 'none';
	if (!shown)
		return;
	f.rect.setAttribute('x', x);
	f.rect.setAttribute('width', w);
	if (fits < 3) {
		if (f.text)
			f.text.textContent = '';
		return;
	}
	if (!f.text) {
		f.text = document.createElementNS(NS, 'text');
		f.text.setAttribute('y', +f.rect.getAttribute('y') + 12);
		f.g.appendChild(f.text);
	}
	f.text.setAttribute('x', x + 3);
	f.text.textContent = name.length <= fits ? name : name.slice(0, fits - 1) + '\u2026';
}

function draw() {
	var z = frames[zoomed], room = width - 2 * MARGIN, scale = z.v > 0 ? room / z.v : 0, above = {};
	for (var p = z.parent; p; p = p.parent)
		above[frames.indexOf(p)] = true;
	frames.forEach(function (f, i) {
		var inside = i >= zoomed && i < z.end;
		if (above[i])
			place(f, MARGIN, room);
		else if (inside && i === zoomed)
			place(f, MARGIN, room);
		else if (inside)
			place(f, MARGIN + (f.start - z.start) * scale, f.v * scale);
		else
			f.g.style.display = 'none';
		f.g.classList.toggle('off', !!above[i]);
	});
	mark();
}

function mark() {
	var sum = 0, until = 0, z = frames[zoomed];
	frames.forEach(function (f, i) {
		var hit = !!pattern && i > 0 && pattern.test(f.name);
		f.g.classList.toggle('hit', hit);
		// A match within a match counts once.
		if (hit && i >= until && i >= zoomed && i < z.end) {
			sum += f.v;
			until = f.end;
		}
	});
	if (matched)
		matched.textContent = !pattern ? '' :
			'matched ' + (z.v > 0 ? (100 * sum / z.v).toFixed(2) : '0') + ' %';
}

function zoom(i) {
	zoomed = i;
	draw();
}

function search(text) {
	pattern = null;
	if (text) {
		try {
			pattern = new RegExp(text, 'i');
		} catch (e) { // an unfinished expression is searched for as it stands
			pattern = new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
		}
	}
	mark();
}

function ask() {
	if (page) {
		page.getElementById('filter').focus();
		return;
	}
	var text = window.prompt('Search for (regular expression):', '');
	if (text !== null)
		search(text);
}

function reset() {
	if (page)
		page.getElementById('filter').value = '';
	search('');
	zoom(0);
}

function describe(f) {
	if (details)
		details.textContent = f ? f.name + '  ' + f.facts : '';
}

function resize() {
	var box = page ? svg.parentNode.clientWidth : window.innerWidth;
	var height = +svg.getAttribute('data-height');
	width = Math.max(320, box || +svg.getAttribute('data-width'));
	svg.setAttribute('width', width);
	svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
	draw();
}

function theme(name) {
	(page ? document.documentElement : svg).setAttribute('data-theme', name);
}

function listen(id, action) {
	var e = document.getElementById(id);
	if (e)
		e.addEventListener('click', action);
}

read();
frames.forEach(function (f, i) {
	f.g.setAttribute('tabindex', '0');
	f.g.addEventListener('click', function () { zoom(i); });
	f.g.addEventListener('mouseover', function () { describe(f); });
	f.g.addEventListener('focus', function () { describe(f); });
	f.g.addEventListener('mouseout', function () { describe(null); });
	f.g.addEventListener('keydown', function (e) {
		if (e.key === 'Enter')
			zoom(i);
	});
});
listen('search', ask);
listen('reset', reset);
listen('theme', function () {
	theme(document.documentElement.getAttribute('data-theme') === 'dark' ? 'light' : 'dark');
});
if (page)
	page.getElementById('filter').addEventListener('input', function (e) { search(e.target.value); });
window.addEventListener('keydown', function (e) {
	if (e.key === 'Escape')
		reset();
	else if ((e.key === 'f' && (e.ctrlKey || e.metaKey)) || (e.key === '/' && e.target.tagName !== 'INPUT')) {
		e.preventDefault();
		ask();
	}
});
window.addEventListener('resize', resize);
if (window.matchMedia && window.matchMedia('(prefers-color-scheme: dark)').matches)
	theme('dark');
resize();
})();
