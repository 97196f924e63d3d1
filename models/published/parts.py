#!/usr/bin/env python3
"""Fits the models of products and attention of the machine files to measurements of single kernels.

  parts.py [options]

Rows of measured/products.csv and measured/attention.csv, and the figures of attention below that papers print. A fifth
of the rows, chosen by a hash of what they measure, is left out of the fit; errors of both parts are printed for every
device. The formulas are those of cost_models/machine/kernel_model.h. What comes out is compared with the machine files,
or written into them (--write). Deterministic. Exit status 1 when a shipped model differs."""
import argparse, csv, json, math, os, re, statistics, sys, zlib

HERE = os.path.dirname(os.path.abspath(__file__))
# Peaks in FLOP/s of products without sparsity, bandwidth in B/s, multiprocessors: datasheets.
DEVICES = {
    'a100': dict(bf16=312e12, bw=2.039e12, sm=108),
    'h100': dict(bf16=989e12, fp8=1979e12, fp8_block=1979e12, bw=3.35e12, sm=132),
    'h200': dict(bf16=989e12, fp8=1979e12, fp8_block=1979e12, bw=4.8e12, sm=132),
    'b200': dict(bf16=2250e12, fp8=4500e12, fp8_block=4500e12, nvfp4=9000e12, bw=8e12, sm=148),
    'gb200': dict(bf16=2500e12, fp8=5000e12, fp8_block=5000e12, nvfp4=10000e12, bw=8e12, sm=148),
    'l40s': dict(bf16=362e12, fp8=733e12, fp8_block=733e12, bw=0.864e12, sm=142)}
# The machine files of a device, and of those that borrow its shares: nothing was measured on them.
FILES = {'a100': ['a100_8'], 'h100': ['h100_64', 'h100_128', 'h100_512'], 'h200': ['h200_64'], 'b200': ['b200_64'],
         'gb200': ['gb200_72'], 'l40s': ['l40s_8']}
BORROWED_ATTENTION = {'h200_64': 'h100', 'b200_64': 'h100', 'gb200_72': 'h100', 'l40s_8': 'a100'}
NAMES = {'bfloat16': 'bf16'}
BYTES = {'bf16': 2.0, 'fp8': 1.0, 'fp8_block': 1.0, 'nvfp4': 0.5625}

# As in cost_models/machine/kernel_model.c.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 1.15), (128, 64, 1.45), (64, 128, 1.45))
PARTS, SPLIT_S, BURST_S, QUERIES = (1, 2, 4, 8), 0.25e-6, 1e-3, 128

# FLOPs in 1e12 a second by length 512, 1k, ..., 16k; 16384 tokens, 2048 features in all heads, bf16/f16, H100 SXM5:
# Shah et al. 2024 (arXiv:2407.08608), figures 5 and 6. FLOPs of a backward pass are 2.5 times those of the forward pass.
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FIGURES = [  # kernel, gradient, causal, head_dim, rates
    ('fa2', False, False, 64, (282, 306, 318, 321, 322, 324)), ('fa2', False, False, 128, (309, 350, 362, 368, 370, 370)),
    ('fa2', False, True, 128, (191, 260, 298, 319, 333, 335)), ('fa2', True, False, 64, (198, 238, 264, 279, 287, 291)),
    ('fa2', True, False, 128, (214, 260, 291, 310, 318, 322)),
    ('cudnn', False, False, 64, (335, 373, 395, 408, 412, 413)),
    ('cudnn', False, False, 128, (497, 574, 617, 609, 600, 595)),
    ('cudnn', False, True, 128, (315, 410, 484, 518, 529, 539)),
    ('cudnn', True, False, 64, (266, 348, 395, 417, 432, 433)),
    ('cudnn', True, False, 128, (305, 408, 465, 499, 518, 516)),
    ('fa3', True, False, 64, (272, 363, 422, 453, 472, 474)), ('fa3', True, False, 128, (316, 424, 501, 542, 559, 561))]
# FlashAttention-2 on A100 reaches 73 % of the peak forward and 63 % backward (Dao 2023, arXiv:2307.08691).
FA2_A100_GRAD = 63.0 / 73.0


def held_out(*key):
    """A fifth of all rows."""
    return zlib.crc32(' '.join(str(k) for k in key).encode()) % 5 == 0


# ---- products ----

def product_terms(d, dtype, m, n, k):
    """What the constants leave to compute: (FLOPs of a device that works full waves without ramp, the same of 1 of ramp,
    seconds of a split) for tiles and splits, bytes, elements of x."""
    terms = []
    for tm, tn, cost in TILES:
        tiles = math.ceil(m / tm) * math.ceil(n / tn)
        for s in PARTS:
            unit = math.ceil(tiles * s / d['sm']) * 2.0 * tm * tn * cost * d['sm']
            terms.append((unit * k / s, unit, s * SPLIT_S if s > 1 else 0.0))
    return terms, BYTES[dtype] * (m * k + k * n) + 2.0 * m * n, float(m * k)


def product_alone_s(c, peak, bw, row):
    terms, moved, first = row
    rate = c['rate'] * c['burst'] * peak
    compute = min((a + c['ramp'] * b) / rate + s for a, b, s in terms)
    moving = moved / (c['memory'] * bw)
    compute = compute + max(compute - BURST_S, 0.0) * (c['burst'] - 1.0) if compute >= moving else moving
    return c['start_s'] + compute + c['quantize'] * first / (c['memory'] * bw)


# ---- attention ----

def attention_s(c, grad, d, batch, length, heads, kv_heads, head_dim, causal):
    pairs_of_query = 0.5 * length if causal else float(length)
    products = (5.0 if grad else 2.0) * head_dim
    seen = min(pairs_of_query + 0.5 * QUERIES, length)
    tiles = batch * heads * math.ceil(length / QUERIES)
    flops = 2.0 * tiles * QUERIES * seen * (products + c['score'])
    moved = 2.0 * batch * length * head_dim * ((4 if grad else 2) * heads + (4 if grad else 2) * kv_heads)
    return c['start_s'] + flops / (c['grad' if grad else 'rate'] * d['bf16']) * max(d['sm'] / tiles, 1.0) + moved / (
        c['memory'] * d['bw'])


def figures(kernel, grad):
    """Rows of the published figures: (batch, length, heads, kv_heads, head_dim, causal), seconds."""
    out = []
    for name, g, causal, head_dim, rates in FIGURES:
        if (name, g) == (kernel, grad):
            heads = 2048 // head_dim
            for length, rate in zip(LENGTHS, rates):
                flops = 4.0 * 16384 * length * 2048 * (0.5 if causal else 1.0) * (2.5 if grad else 1.0)
                out.append(((16384 // length, length, heads, heads, head_dim, causal), flops / (rate * 1e12)))
    return out


# ---- fitting ----

GRID = {'rate': (0.02, 1.5), 'grad': (0.02, 1.5), 'burst': (1.0, 1.6), 'ramp': (1.0, 2000.0), 'start_s': (1e-6, 5e-5),
        'memory': (0.1, 1.0), 'quantize': (0.5, 20.0), 'score': (1.0, 1000.0)}
STEPS = (0.7, 0.9, 0.97, 0.99, 1.01, 1.03, 1.1, 1.4)


def rounded(x):
    return float('%.3g' % x)


def descend(start, free, error, grid=GRID):
    """The best constants: coordinate descent with steps that are factors, three digits."""
    best, least, moved = dict(start), error(start), True
    while moved:
        moved = False
        for key in free:
            for f in STEPS:
                value = rounded(min(max(best[key] * f, grid[key][0]), grid[key][1]))
                trial = {**best, key: value}
                e = error(trial)
                if e < least - 1e-6:
                    best, least, moved = trial, e, True
    return best


def mean_log(pairs):
    return statistics.fmean(abs(math.log(p / m)) for p, m in pairs)


def report(what, rows):
    """rows: (predicted, measured, held out, large)."""
    def mape(pick):
        e = [abs(p / m - 1.0) for p, m, h, big in rows if pick(h, big)]
        return '%5.1f %% (%3d)' % (100.0 * statistics.fmean(e), len(e)) if e else '          '
    print('%-18s fitted %s   held out %s   of these m >= 2048 %s   median %.2f' % (
        what, mape(lambda h, b: not h), mape(lambda h, b: h), mape(lambda h, b: h and b),
        statistics.median(p / m for p, m, h, b in rows if h)), flush=True)


def fit_products(o):
    groups = {}
    for r in csv.DictReader(open(os.path.join(o.measured, 'products.csv'))):
        dtype = NAMES.get(r['dtype'], r['dtype'])
        groups.setdefault((r['device'], dtype), []).append((int(r['m']), int(r['n']), int(r['k']), 1e-3 * float(r['ms_median'])))
    models = {}
    for (device, dtype), rows in sorted(groups.items()):
        d = DEVICES[device]
        done = [(product_terms(d, dtype, m, n, k), t, held_out(device, dtype, m, n, k), m >= 2048) for m, n, k, t in rows]
        fitted = [r for r in done if not r[2]]
        start = {'rate': 0.6, 'burst': 1.1, 'ramp': 100.0, 'start_s': 3e-6, 'memory': 0.7, 'quantize': 0.0}
        free = ['rate', 'burst', 'ramp', 'start_s', 'memory']
        if dtype != 'bf16':
            start['quantize'] = 4.0
            free.append('quantize')
        c = descend(start, free, lambda c: mean_log([(product_alone_s(c, d[dtype], d['bw'], r[0]), r[1]) for r in fitted]))
        models.setdefault(device, {})[dtype] = c if c['quantize'] else {k: v for k, v in c.items() if k != 'quantize'}
        report('%s %s' % (device, dtype), [(product_alone_s(c, d[dtype], d['bw'], r[0]), r[1], r[2], r[3]) for r in done])
    return models


def fit_attention(o):
    measured = {}
    for r in csv.DictReader(open(os.path.join(o.measured, 'attention.csv'))):
        shape = tuple(int(r[k]) for k in ('batch', 'length', 'heads', 'kv_heads', 'head_dim')) + (True,)
        measured.setdefault(r['device'], []).append((shape, 1e-3 * float(r['ms_median']), held_out(r['device'], *shape)))
    start = {'rate': 0.6, 'grad': 0.5, 'score': 50.0, 'start_s': 1e-5, 'memory': 0.5}
    # Engines that were measured copy keys and values into their cache; a start beyond these is theirs.
    grid = {**GRID, 'start_s': (4e-6, 1e-5)}
    models = {}

    def fit(device, kernel, rows, grads, fixed={}):
        d = DEVICES[device]
        begin = {**start, **fixed}
        free = [k for k in ('rate', 'score', 'start_s', 'memory') if k not in fixed]
        fitted = [r for r in rows if not r[2]]
        c = descend(begin, free, lambda c: mean_log([(attention_s(c, False, d, *s), t) for s, t, h in fitted]), grid)
        report('%s %s' % (device, kernel), [(attention_s(c, False, d, *s), t, h, False) for s, t, h in rows])
        if grads:
            c = descend(c, ['grad'], lambda c: mean_log([(attention_s(c, True, d, *s), t) for s, t in grads]))
            report('%s %s grad' % (device, kernel), [(attention_s(c, True, d, *s), t, True, False) for s, t in grads])
        models.setdefault(device, {})[kernel] = c
        return c

    def published(kernel):
        return [(s, t, held_out(kernel, *s)) for s, t in figures(kernel, False)]
    fa3 = fit('h100', 'fa3', measured['h100'], figures('fa3', True))
    fa2 = fit('h100', 'fa2', published('fa2'), figures('fa2', True))
    fit('h100', 'cudnn', published('cudnn'), figures('cudnn', True))
    a100 = fit('a100', 'fa2', measured['a100'], [], {'score': fa2['score']})
    a100['grad'] = rounded(a100['rate'] * FA2_A100_GRAD)
    h200 = fit('h200', 'fa3', measured['h200'], [], {'score': fa3['score']})
    h200['grad'] = rounded(h200['rate'] * fa3['grad'] / fa3['rate'])
    models['h200'].update({k: models['h100'][k] for k in ('fa2', 'cudnn')})
    return models


# ---- machine files ----

def line_of(models):
    return ',\n'.join('      %s: %s' % (json.dumps(k), json.dumps(v)) for k, v in sorted(models.items()))


def settle(name, device, products, attention, o):
    """Compares or writes the models of a machine file; whether they differed."""
    path = os.path.join(o.models, 'machines', name + '.json')
    if not os.path.exists(path):
        return False
    text = open(path).read()
    d, old = DEVICES[device], json.loads(text)['device']
    new = dict(multiprocessors=d['sm'], products=products, attention=attention)
    flops = {k: d[k] for k in products if k != 'bf16'}
    if all(old.get(k) == v for k, v in new.items()) and all(old['flops'].get(k) == v for k, v in flops.items()):
        return False
    print('%s: the models differ%s' % (path, ', written' if o.write else ''))
    if o.write:
        text = re.sub(r'    "multiprocessors": \d+,\n', '', text)
        for key in ('products', 'attention'):
            text = re.sub(r'    "%s": \{\n(      .*\n)*    \},\n' % key, '', text)
        rates = re.search(r'"flops": (\{.*\})', text)
        merged = {**json.loads(rates.group(1)), **flops}
        shown = '{' + ', '.join('"%s": %s' % (k, ('%g' % v).replace('e+', 'e')) for k, v in merged.items()) + '}'
        text = text[:rates.start(1)] + shown + text[rates.end(1):]
        at = text.index('    "overlap"')
        text = text[:at] + '    "multiprocessors": %d,\n    "products": {\n%s\n    },\n    "attention": {\n%s\n    },\n' % (
            d['sm'], line_of(products), line_of(attention)) + text[at:]
        open(path, 'w').write(text)
    return not o.write


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('--measured', default=os.path.join(HERE, 'measured'), help='folder of products.csv and attention.csv')
    a.add_argument('--models', default=os.path.dirname(HERE))
    a.add_argument('--write', action='store_true', help='into the machine files')
    o = a.parse_args()
    attention, products = fit_attention(o), fit_products(o)
    differ = []
    for device, names in FILES.items():
        for name in names:
            kernels = attention.get(device) or attention[BORROWED_ATTENTION[name]]
            differ.append(settle(name, device, products[device], kernels, o))
    return 1 if any(differ) else 0


if __name__ == '__main__':
    sys.exit(main())
