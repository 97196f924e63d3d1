#!/usr/bin/env python3
"""Fits the efficiencies of the shipped machine files to published training runs.

  fit.py [options]

The parts are fixed: products, attention and collectives are priced as they were measured alone (parts.py,
collectives.py). What is left is, of every card, the share of them that training reaches: of products (clocks under
sustained load), of memory-bound kernels (norms, casts, optimizer: a share of the bandwidth) and of attention, of current
kernels and of older ones; of every framework, the time in which its host issues a kernel. Rows are predicted with the
numbers so far; then those are chosen that bring the seconds of products, attention, memory and host nearest to the
published steps, and so on until they stay. Exposed communication and launches are what dtplan says. Last comes what rings
wait at every host of an AWS network (hop_s), from the runs on two to 64 hosts. What comes out is
compared with the sets in the machine files, or written into them (--write). Deterministic. Exit status 1 when a shipped
set differs."""
import argparse, concurrent.futures, datetime, json, os, re, sys, tempfile

import published

HERE = os.path.dirname(os.path.abspath(__file__))
# The machine files of a card, and of those that borrow its sets: no rows of theirs are published.
CARDS = {'a100': ['a100_8', 'a100_512', 'a100_512_efa'], 'b200': ['b200_64'],
         'h100': ['h100_64', 'h100_128', 'h100_512', 'h100_512_efa']}
BORROWERS = {'h200_64': 'h100', 'mi300x_64': 'h100', 'tpu_v5p_64': 'h100', 'gb200_72': 'b200', 'l4_16': 'a100',
             'l40s_8': 'a100', 'v100_16': 'a100'}
PARTS = ('products', 'memory', 'attention', 'attention_grad')
# Runtimes with kernels of their own: TransformerEngine's, and what XLA compiles.
OWN = ('megatron', 'maxtext')
# Files beside rows.json; published.is_fitted says which of their rows are fitted.
MORE = ('rows4.json', 'simumax18.json', 'megatron108.json')
# torchtitan's selective recomputation: every second product, attention and what it reduces are kept.
SELECTIVE = 'layer keep=**.{attn.q.mm,attn.v,attn,mlp.gate.mm,mlp.out}$'
START = {'products': 0.85, 'memory': 0.5, 'attention': 0.7, 'host': 8}
# Attention of Megatron in 2022 is products with the scores in memory: some 12 bytes for each score forward and 19 backward
# take 4 to 8 times as long as FlashAttention 2 does.
LEAST_UNFUSED = 0.1
LEAST, MOST, STEPS = {'products': 0.5, 'memory': 0.5, 'attention': 0.5}, 1.0, (-0.1, -0.01, 0.01, 0.1)
HOST_UNIT_S, HOST_MOST, HOST_STEPS = 1e-06, 50, (-5, -1, 1, 5)
# The network whose hop_s is fitted, and who borrows it; microseconds that are tried.
NETWORK, NETWORK_BORROWERS, HOPS = 'h100_512_efa', ['a100_512_efa'], range(0, 101, 10)
LAUNCH_S = 4e-06  # of the machine files
PASSES = 8
HOST_GAIN = 2e-4  # what a step of a host's time must gain: where rows do not tell it, it stays


def card_of(machine):
    return next(c for c in CARDS if machine.startswith(c))


def key_of(row):
    return card_of(row['machine']), row['runtime']


def number(key, part):
    """What the number of a part depends on."""
    kernels = {'torch': 'torch', 'megatron-2022': 'unfused'}.get(key[1], 'older')
    if key[1] in OWN:
        return ('current', key[1], part) if part == 'host' else (key[0], key[1], part)
    return {'host': (key[1].split('-')[0], part), 'attention': (key[0], kernels, part)}.get(part, (key[0], part))


def share(numbers, key, part):
    """Of the measured part, with two digits."""
    return numbers[number(key, 'attention' if part == 'attention_grad' else part)]


def kernel_of(key):
    """Whose attention a runtime has: FlashAttention 2, as scaled_dot_product_attention and flash-attn on A100 and H100;
    that of cuDNN on B200, in TransformerEngine and XLA."""
    return 'cudnn' if key[0] == 'b200' or (key[0] == 'h100' and key[1] in OWN) else 'fa2'


def set_of(numbers, key, how, model=None):
    """A set; of a machine without models of its parts (model: the device of the lender) shares are of the peaks."""
    out = {p: share(numbers, key, p) for p in PARTS}
    kernel = kernel_of(key)
    if model is None:
        out['kernel'] = kernel
    else:
        attention = model['attention'][kernel]
        for part, rate in (('products', model['products']['bf16']['rate']), ('attention', attention['rate']),
                           ('attention_grad', attention['grad'])):
            out[part] = round(out[part] * rate, 2)
    out['host_s'] = round(numbers[number(key, 'host')] * HOST_UNIT_S, 9)
    out['provenance'] = how
    return out


def predict(rows, numbers, keys, o):
    with tempfile.TemporaryDirectory() as folder:
        for m in sorted({r['machine'] for r in rows}):
            path = next(f for f in (os.path.join(d, m + '.json') for d in o.folders) if os.path.exists(f))
            machine = json.load(open(path))
            own = json.load(open(os.path.join(o.models, 'machines', CARDS[card_of(m)][0] + '.json')))['device']
            if 'products' not in machine['device']:
                machine['device'].update(multiprocessors=own['multiprocessors'], attention=own['attention'],
                                         products={'bf16': own['products']['bf16']})
            if m == NETWORK and o.hop is not None:
                machine['levels'][-1]['hop_s'] = o.hop * HOST_UNIT_S
            machine['efficiency'] = {k[1]: set_of(numbers, k, {'how': 'fitted'}) for k in keys if k[0] == card_of(m)}
            json.dump(machine, open(os.path.join(folder, m + '.json'), 'w'))
        p = argparse.Namespace(dtplan=o.dtplan, models=o.models, machine_dir=folder, target='torch',
                               compiled='torch_compile', selective=o.selective, runtime_option='--runtime',
                               plan_option=['--alone'], timeout=600.0)
        with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
            done = list(pool.map(lambda r: published.predict(r, p), rows))
    for r in done:
        if r['predicted'] is None:
            sys.exit('%s: %s' % (r['id'], r['why']))
    return done


def issued(row):
    """Kernels, copies and collectives of a step."""
    p = row['predicted']
    return p['compute']['launch_s'] / LAUNCH_S + sum(c['count'] for c in p['collectives'].values())


def surrogate(row, old, new):
    """What numbers make of a step: the device is busy, or it waits for the host."""
    p, key = row['predicted'], key_of(row)
    device = p['step_time_s'] - p.get('host_s', 0.0)
    for part in PARTS:
        device += p['compute'][part + '_s'] * (share(old, key, part) / share(new, key, part) - 1.0)
    host = issued(row) * new[number(key, 'host')] * HOST_UNIT_S
    return (device ** 4 + host ** 4) ** 0.25


def step(row, old, new):
    """The step with other numbers, near to those that it was predicted with."""
    return row['predicted']['step_time_s'] * surrogate(row, old, new) / surrogate(row, old, old)


def miss(rows, old, new):
    """Mean absolute relative error."""
    return sum(abs(step(r, old, new) / r['step_s'] - 1.0) for r in rows) / len(rows)


def improve(rows, old):
    """The best numbers: coordinate descent over a grid."""
    new, best, moved = dict(old), miss(rows, old, old), True
    while moved:
        moved = False
        for k in sorted(new):
            host = k[-1] == 'host'
            for d in HOST_STEPS if host else STEPS:
                value = new[k] + d if host else round(new[k] + d, 2)
                least = LEAST_UNFUSED if 'unfused' in k else 0 if host else LEAST[k[-1]]
                if not least <= value <= (HOST_MOST if host else MOST):
                    continue
                e = miss(rows, old, {**new, k: value})
                if e < best - (HOST_GAIN if host else 1e-9):
                    best, moved = e, True
                    new[k] = value
    return new, best


def fit(rows, keys, o):
    old = {number(k, p): START[p] for k in keys for p in START}
    for i in range(PASSES):
        done = predict(rows, old, keys, o)
        new, best = improve(done, old)
        print('pass %d: %.2f %% off, then %.2f %%' % (i + 1, 100 * miss(done, old, old), 100 * best))
        print('  ' + ', '.join('%s %g' % ('/'.join(k), v) for k, v in sorted(new.items())), flush=True)
        if new == old or best > 0.998 * miss(done, old, old):
            break
        old = new
    return old


def fit_hop(rows, numbers, keys, o):
    """What a ring waits at every host of NETWORK: with the best of a grid its runs on several hosts are nearest, on however
    many, but for tensor parallel groups over hosts."""
    mine = [r for r in rows if r['machine'] == NETWORK and r['devices'] > 8 and r['tp'] <= 8]
    misses = {}
    for o.hop in HOPS:
        misses[o.hop] = miss(predict(mine, numbers, keys, o), numbers, numbers)
        print('hop %g us: %.2f %% off over %d rows' % (o.hop, 100 * misses[o.hop], len(mine)), flush=True)
    return min(HOPS, key=lambda hop: misses[hop]) * HOST_UNIT_S


def settle_hop(machine, hop_s, o):
    """Compares or writes hop_s of the outermost level of a machine file; whether it differed."""
    path = os.path.join(o.models, 'machines', machine + '.json')
    text = open(path).read()
    if json.loads(text)['levels'][-1]['hop_s'] == hop_s:
        return False
    print('%s: hop_s differs%s' % (path, ', written' if o.write else ''))
    if o.write:
        open(path, 'w').write(re.sub(r'"hop_s": [0-9.e-]+', lambda _: '"hop_s": %s' % json.dumps(hop_s), text))
    return not o.write


def shipped(numbers, rows, keys, machine, o):
    """The sets of a machine file."""
    card = BORROWERS.get(machine) or card_of(machine)
    sets, models = {}, None
    if 'products' not in json.load(open(os.path.join(o.models, 'machines', machine + '.json')))['device']:
        models = json.load(open(os.path.join(o.models, 'machines', CARDS[card][0] + '.json')))['device']
    for k in keys:
        if k[0] == card:
            mine = [r for r in rows if key_of(r) == k]
            on = '%s; %s' % (', '.join(sorted({r['model'] for r in mine})), ', '.join(sorted({r['hw'] for r in mine})))
            how = {'how': 'fitted', 'rows': len(mine), 'on': on}
            if machine in BORROWERS:
                how = {'how': 'borrowed', 'from': CARDS[card][0], 'on': on}
            sets[k[1]] = set_of(numbers, k, how, models)
    return sets


def text_of(sets):
    lines = []
    for name, s in sets.items():
        numbers = ', '.join('"%s": %s' % (k, json.dumps(v)) for k, v in s.items() if k != 'provenance')
        lines.append('    "%s": {%s,\n      "provenance": %s}' % (name, numbers, json.dumps(s['provenance'])))
    return '  "efficiency": {\n' + ',\n'.join(lines) + '\n  },\n'


def without_dates(sets):
    return {k: dict(s, provenance={p: v for p, v in s['provenance'].items() if p != 'date'}) for k, s in sets.items()}


def settle(machine, sets, o):
    """Compares or writes the sets of a machine file; whether they differed."""
    path = os.path.join(o.models, 'machines', machine + '.json')
    text = open(path).read()
    if without_dates(json.loads(text).get('efficiency', {})) == sets:
        return False
    print('%s: the sets differ%s' % (path, ', written' if o.write else ''))
    if o.write:
        for s in sets.values():
            s['provenance']['date'] = datetime.date.today().isoformat()
        text = re.sub(r'  "efficiency": \{\n(    .*\n)*  \},\n', '', text)
        at = text.rindex('  "provenance"')
        open(path, 'w').write(text[:at] + text_of(sets) + text[at:])
    return not o.write


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('--rows', default=os.path.join(HERE, 'rows.json'))
    a.add_argument('--dtplan', default='dtplan')
    a.add_argument('--models', default=os.path.dirname(HERE))
    a.add_argument('--selective', default=SELECTIVE, help='value of --remat for rows with selective recomputation')
    a.add_argument('--jobs', type=int, default=2)
    a.add_argument('--write', action='store_true', help='into the machine files')
    o = a.parse_args()
    o.hop = None
    o.folders = [os.path.join(o.models, 'machines'), os.path.join(HERE, 'machines')]
    every = [r for path in [o.rows] + [os.path.join(HERE, name) for name in MORE] for r in published.read_rows(path)
             if r.get('step_s') and r['id'] not in published.LEFT_OUT]
    rows = [r for r in every if published.is_fitted(r)]
    keys = sorted({key_of(r) for r in rows})
    numbers = fit(rows, keys, o)
    machines = sorted(m for files in CARDS.values() for m in files) + sorted(BORROWERS)
    hop_s = round(fit_hop(every, numbers, keys, o), 9)
    differ = [m for m in machines if settle(m, shipped(numbers, rows, keys, m, o), o)]
    differ += [m for m in [NETWORK] + NETWORK_BORROWERS if settle_hop(m, hop_s, o)]
    return 1 if differ else 0


if __name__ == '__main__':
    sys.exit(main())
