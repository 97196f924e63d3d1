#!/usr/bin/env python3
"""Draws predicted over published step times, both axes logarithmic, from the page that published.py --markdown writes.

  plot.py ROWS.json... --page docs/results/published.md -o docs/results/published.svg

A row of the page is found by its id among the rows. published.py --markdown draws the figure beside the page by itself."""
import argparse
import json
import math
import os
import re
import xml.sax.saxutils

WIDE, LEFT, TOP, SIDE, ROW = 760, 62, 34, 380, 34  # of the drawing; of the square between the axes; of a series beside it
STYLE = """.plot { --ink: #1f2933; --muted: #57616b; --line: #9aa5b1; --grid: #e4e7eb; --back: #ffffff;
  --s0: #2f6fb0; --s1: #b5541c; --s2: #2a7f62; --s3: #7a4f9f; --s4: #b03a6e; --s5: #8a6d00;
  font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 12px; }
@media (prefers-color-scheme: dark) { .plot { --ink: #e4e7eb; --muted: #a6b0ba; --line: #616e7c; --grid: #3e4c59; --back: #10161c;
  --s0: #6fa8e0; --s1: #e69a6b; --s2: #5fbf9b; --s3: #b393d6; --s4: #e68ab3; --s5: #c4ad4a; } }
.plot text { fill: var(--ink); } .plot text.small { font-size: 11px; fill: var(--muted); }
.plot line { stroke: var(--grid); } .plot line.same { stroke: var(--ink); } .plot line.off { stroke: var(--line); stroke-dasharray: 4 3; }
.plot rect.frame { fill: none; stroke: var(--line); } .plot rect.back { fill: var(--back); }
.plot .mark { fill-opacity: 0.75; stroke: var(--back); stroke-width: 0.7; }
"""


def points(page, rows):
    """(id, series, published seconds, predicted seconds) of every row of the page that has both."""
    of = {r['id']: (r['group'].split('/')[0], r['hw'].split('_')[0].upper()) for r in rows}
    out = []
    for line in page.splitlines():
        cells = [c.strip() for c in line.split('|')][1:-1]
        if len(cells) != 10 or not re.fullmatch(r'[\d.e+-]+ s', cells[6]):
            continue
        name = cells[0].split()[0]
        out.append((cells[0], '%s, %s' % of[name], float(cells[6][:-2]), float(cells[7][:-2])))
    return out


def mark(series, x, y, title):
    """A circle, square, diamond or triangle: series differ without colours as well."""
    shape = ('<circle cx="%.1f" cy="%.1f" r="4.2"' % (x, y),
             '<rect x="%.1f" y="%.1f" width="7.4" height="7.4"' % (x - 3.7, y - 3.7),
             '<path d="M%.1f %.1fl5 5l-5 5l-5 -5z"' % (x, y - 5),
             '<path d="M%.1f %.1fl4.8 8.4h-9.6z"' % (x, y - 5.2),
             '<path d="M%.1f %.1fl4.8 -8.4h-9.6z"' % (x, y + 5.2))[series % 5]
    return '%s class="mark" style="fill: var(--s%d)"><title>%s</title>%s' % (
        shape, series % 6, xml.sax.saxutils.escape(title), '</' + shape[1:shape.index(' ')] + '>')


def draw(found):
    """The SVG of points()."""
    values = [v for p in found for v in p[2:]]
    series = sorted({p[1] for p in found})
    tall = max(TOP + SIDE + 56, TOP + ROW * len(series) + 34)
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1

    def at(seconds):
        return (math.log10(seconds) - low) / (high - low) * SIDE

    def line(kind, x0, y0, x1, y1):
        return '<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (kind, LEFT + x0, TOP + SIDE - y0, LEFT + x1, TOP + SIDE - y1)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 %d %d" width="%d" height="%d">' % (WIDE, tall, WIDE, tall),
           '<title>Predicted and published step times</title>', '<style>\n%s</style>' % STYLE,
           '<rect class="back" x="0" y="0" width="%d" height="%d"/>' % (WIDE, tall)]
    for decade in range(math.floor(low), math.ceil(high) + 1):
        for factor in (1, 2, 5):
            seconds = factor * 10.0 ** decade
            if not 0 <= at(seconds) <= SIDE:
                continue
            out += [line('grid', at(seconds), 0, at(seconds), SIDE), line('grid', 0, at(seconds), SIDE, at(seconds)),
                    '<text class="small" x="%.1f" y="%d" text-anchor="middle">%g</text>' % (LEFT + at(seconds), TOP + SIDE + 16, seconds),
                    '<text class="small" x="%d" y="%.1f" text-anchor="end">%g</text>' % (LEFT - 6, TOP + SIDE - at(seconds) + 4, seconds)]
    for factor, kind in ((1.0, 'same'), (1.2, 'off'), (1 / 1.2, 'off')):
        shift = math.log10(factor) / (high - low) * SIDE
        out.append(line(kind, max(0, -shift), max(0, shift), SIDE - max(0, shift), SIDE + min(0, shift)))
    out += ['<rect class="frame" x="%d" y="%d" width="%d" height="%d"/>' % (LEFT, TOP, SIDE, SIDE),
            '<text x="%d" y="20" style="font-weight: 600">%d published training runs</text>' % (LEFT, len(found)),
            '<text x="%d" y="%d" text-anchor="middle">published, seconds a step</text>' % (LEFT + SIDE // 2, TOP + SIDE + 38),
            '<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">predicted</text>' % (TOP + SIDE // 2)]
    for name, which, published, predicted in found:
        out.append(mark(series.index(which), LEFT + at(published), TOP + SIDE - at(predicted),
                        '%s: published %.4g s, predicted %.4g s' % (name, published, predicted)))
    for k, name in enumerate(series):
        ratios = [p[3] / p[2] for p in found if p[1] == name]
        y = TOP + 16 + ROW * k
        out += [mark(k, LEFT + SIDE + 26, y - 4, name), '<text x="%d" y="%d">%s</text>' % (LEFT + SIDE + 38, y, xml.sax.saxutils.escape(name)),
                '<text class="small" x="%d" y="%d">%d runs, mean error %.1f %%</text>' % (
                    LEFT + SIDE + 38, y + 15, len(ratios), 100 * sum(abs(r - 1) for r in ratios) / len(ratios))]
    y = TOP + 24 + ROW * len(series)
    out += ['<text class="small" x="%d" y="%d">line: predicted as published; dashed: 20 %% off</text>' % (LEFT + SIDE + 20, y), '</svg>', '']
    return '\n'.join(out)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('rows', nargs='+')
    a.add_argument('--page', required=True, help='what published.py --markdown wrote')
    a.add_argument('-o', '--output', required=True)
    a.add_argument('--check', action='store_true', help='write nothing; exit with 1 when the file is not what would be written')
    o = a.parse_args()
    rows = [r for f in o.rows for r in json.load(open(f, encoding='utf-8'))]
    with open(o.page, encoding='utf-8') as f:
        found = points(f.read(), rows)
    if not found:
        print('%s has no rows with published and predicted seconds' % o.page)
        return 2
    text = draw(found)
    if o.check:
        with open(o.output, encoding='utf-8') as f:
            same = f.read() == text
        if not same:
            print('%s is not what %s draws of %s' % (o.output, os.path.basename(__file__), o.page))
        return 0 if same else 1
    with open(o.output, 'w', encoding='utf-8') as f:
        f.write(text)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
