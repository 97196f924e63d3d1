#!/usr/bin/env python3
"""Compares the predictions of dtplan with published training runs.

  published.py ROWS.json [options]

Every row of ROWS.json has the published seconds of a step (step_s) or GiB of a device (memory_gib), or both, and what
dtplan needs to predict them: base (a model of --models), args, machine. Prints a line per row, then for every group
(one model on one cluster) and for all rows: n, MAPE and median of predicted/published, Spearman's rank correlation of
seconds a token and device, and the regret: how much slower the run that is predicted to be the fastest was than the
fastest one. Predictions are deterministic. Exit status 1 when a bar that was given is not met or a row fails."""
import argparse, concurrent.futures, fnmatch, json, os, shlex, statistics, subprocess, sys

import plot


# On what a family of rows ran, where it is more or other than its rows say: network, target, whose kernels, options.
# MaxText keeps all products but the first of the MLP (NVIDIA/dgxc-benchmarking maxtext/configure.sh @ 35a9aec, bf16);
# paxml keeps products (SAVE_DOT_ONLY, paxml/paxml_mod_configs.py there); NeMo's recipe has ub_tp_comm_overlap
# (nemotron/nemotron4-15b-synth.yaml there); fms-fsdp reduces gradients in bf16 (fms_fsdp/policies/mixed_precision.py @ 8ec8256).
# nanotron's authors published all-reduces that fall from 436 to 33 GB/s between 1 and 64 hosts (AWS p5, EFA); NVIDIA's own
# clusters are rail-optimised.
FAMILIES = {'ultrascale': {'machine': 'h100_512_efa', 'target': 'nanotron'}, 'nanotron': {'target': 'nanotron'},
            'SimuMax': {'target': 'megatron', 'runtime': 'megatron'},
            'NeMo': {'machine': 'h100_512', 'target': 'megatron_overlap', 'runtime': 'megatron'},
            'paxml': {'machine': 'h100_512', 'runtime': 'maxtext', 'options': [
                '--remat', 'layer keep=**.{attn.q.mm,attn.k.mm,attn.v.mm,attn.mm,mlp.up.mm,mlp.down.mm}'],
                'recompute': 'all but products'},
            'maxtext-gpu': {'machine': 'h100_512', 'runtime': 'maxtext', 'options': [
                '--remat', 'layer keep=**.{attn.q.mm,attn.k.mm,attn.v,attn.out,mlp.out}'], 'recompute': 'mlp.gate, mlp.up'},
            'fms-fsdp': {'options': ['--precision', 'bf16']}, 'maxtext-tpu': {'runtime': 'maxtext'}}


# The families that fit.py fits, of the second ones runs within 8 hosts with a tensor parallel group within a host, all of
# them without pipeline stages. All other rows are only predicted.
FITTED = ('vTrain', 'llm-foundry', 'torchtitan', 'nanotron')
FITTED_WITHIN = ('ultrascale', 'SimuMax', 'NeMo', 'paxml', 'maxtext-gpu')
LEAST_CELL = 3  # configurations of a model on a cluster that can be ordered
# Rows beyond a factor of three, which no score counts.
LEFT_OUT = {'u100': '8.86B, tp 16 on 64 hosts: slower than on 16',
            'u103': '8.86B, tp 32: 8 times as long on 16 hosts as on 64',
            'w042': '80B, tp 4 with 32 stages on 64 hosts: 7 times as long as with 16 on 32'}


def read_rows(path):
    return [dict(r, **FAMILIES.get(r['family'], {})) for r in json.load(open(path))]


def is_fitted(row):
    within = row['family'] in FITTED_WITHIN and row['devices'] <= 64 and row['tp'] <= 8
    return (row['id'] not in LEFT_OUT and bool(row.get('step_s')) and row.get('pp', 1) == 1 and
            (row['family'] in FITTED or within))


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            out[order[k]] = (i + j) / 2.0
        i = j + 1
    return out


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    ma, mb = statistics.fmean(a), statistics.fmean(b)
    num = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    den = (sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b)) ** 0.5
    return num / den if den > 0 else float('nan')


def command(row, o):
    fused = row.get('kernels') in ('compiled', 'fused')
    target = row.get('target') or (o.compiled if fused and o.compiled else o.target)
    machine = row['machine']
    if o.machine_dir:
        own = [os.path.join(o.machine_dir, n + '.json') for n in (machine + '.' + row['runtime'], machine)]
        machine = next((f for f in own if os.path.exists(f)), machine)
    c = [o.dtplan, 'plan', os.path.join(o.models, row['base'] + '.json')] + row['args'] + ['--machine', machine]
    if target:
        c += ['--target', target]
    if o.runtime_option:
        c += [o.runtime_option, row['runtime']]
    if o.selective and row.get('recompute', '').startswith('selective'):
        c += ['--remat', o.selective]
    return c + row.get('options', []) + o.plan_option + ['--json', '-o', os.devnull]


def case(row, o):
    """The row as a case of a suite of `dtplan regress` (docs/regress.md)."""
    c = command(row, o)[2:-3]
    out = {'name': '%s %s' % (row['id'], row['group']), 'model': c.pop(0), 'dims': {}}
    options = []
    while c:
        key = c.pop(0)
        if key == '--dim':
            name, size = c.pop(0).split('=')
            out['dims'][name] = int(size)
        elif key in ('--machine', '--mesh', '--memory', '--precision'):
            out[key[2:]] = c.pop(0)
        else:
            options.append(key)
    out['options'] = options
    return out


def predict(row, o):
    c = command(row, o)
    try:
        p = subprocess.run(c, capture_output=True, text=True, timeout=o.timeout)
        predicted = json.loads(p.stdout)['predicted'] if p.returncode == 0 else None
        why = (p.stderr.strip().splitlines() or ['no output'])[0]
    except subprocess.TimeoutExpired:
        predicted, why = None, 'it took more than %g s' % o.timeout
    except (ValueError, KeyError) as e:
        predicted, why = None, 'its output: %s' % e
    return dict(row, predicted=predicted, why=None if predicted else why, command=c)


def errors(pairs):
    ratios = [p / m for p, m in pairs]
    return dict(n=len(ratios), mape=100.0 * statistics.fmean(abs(r - 1.0) for r in ratios),
                median=statistics.median(ratios), least=min(ratios), most=max(ratios))


def peak_gib(row):
    """What is predicted beside a row's memory_gib: bytes that the allocator reserves, or that are allocated in it."""
    p = row['predicted']
    reserved = row.get('memory_kind') == 'reserved' and 'reserved_bytes' in p
    return p['reserved_bytes' if reserved else 'peak_bytes'] / 2**30


def score(rows):
    out = {}
    times = [r for r in rows if r.get('step_s')]
    if times:
        out['time'] = errors([(r['predicted']['step_time_s'], r['step_s']) for r in times])
    if len(times) >= LEAST_CELL:
        per = [(r['predicted']['step_time_s'] * r['devices'] / r['tokens'], r['step_s'] * r['devices'] / r['tokens'])
               for r in times]
        first = min(range(len(per)), key=lambda i: per[i][0])
        out['spearman'] = spearman([p for p, _ in per], [m for _, m in per])
        out['regret'] = 100.0 * (per[first][1] / min(m for _, m in per) - 1.0)
    memory = [r for r in rows if r.get('memory_gib')]
    if memory:
        out['memory'] = errors([(peak_gib(r), r['memory_gib']) for r in memory])
    return out


def line(name, s):
    t, m = s.get('time'), s.get('memory')
    text = '%-48s' % name
    text += ' %4d %6.1f%% %6.3f %5.2f-%-5.2f' % (t['n'], t['mape'], t['median'], t['least'], t['most']) if t else ' ' * 32
    text += ' %8.3f %6.1f%%' % (s['spearman'], s['regret']) if 'spearman' in s else ' ' * 17
    text += '   memory %3d %6.1f%% %6.3f' % (m['n'], m['mape'], m['median']) if m else ''
    return text.rstrip()


def in_lines(words):
    """A command of the shell, in lines of at most 110 characters."""
    lines = [words[0]]
    for w in words[1:]:
        if len(lines[-1]) + len(w) < 108:
            lines[-1] += ' ' + w
        else:
            lines[-1] += ' \\'
            lines.append('    ' + w)
    return '\n'.join(lines)


def cells(s):
    t, m = s.get('time'), s.get('memory')
    return '%s | %s | %s | %s' % ('%.1f %%' % t['mape'] if t else '',
                                  '%.2f to %.2f' % (t['least'], t['most']) if t else '',
                                  '%.3f, %.1f %%' % (s['spearman'], s['regret']) if 'spearman' in s else '',
                                  '%.1f %%' % m['mape'] if m else '')


def shares(o):
    """Rows of the fitted sets of the machine files."""
    text = ''
    for name in sorted(os.listdir(os.path.join(o.models, 'machines'))):
        sets = json.load(open(os.path.join(o.models, 'machines', name))).get('efficiency', {})
        for runtime, e in sorted(sets.items()):
            if e['provenance']['how'] == 'fitted':
                text += '| %s | %s | %.2f | %.2f | %.2f of %s | %.0f us |\n' % (
                    name[:-5], runtime, e['products'], e['memory'], e['attention'], e.get('kernel', 'the peak'), 1e6 * e['host_s'])
    return text


def mape(rows):
    return '%.1f %%' % errors([(r['predicted']['step_time_s'], r['step_s']) for r in rows])['mape'] if rows else ''


def runtimes(rows):
    """Rows of the table of runtimes: of every runtime and card what was fitted and what only predicted."""
    text, keys = '', {}
    for r in rows:
        if r.get('step_s'):
            keys.setdefault((r['runtime'], r['hw'].split('_')[0]), []).append(r)
    for (runtime, card), mine in sorted(keys.items()):
        parts = [[r for r in mine if is_fitted(r)], [r for r in mine if not is_fitted(r)]]
        text += '| %s | %s |' % (runtime, card)
        for part in parts:
            families, models = sorted({r['family'] for r in part}), {r['model'] for r in part}
            text += ' %s | %d of %d | %s |' % (', '.join(families), len(part), len(models), mape(part))
        text += '\n'
    return text


def sizes(rows):
    """Rows of the table of sizes: up to 64 GPUs and from 128 on, steps and the cells that can be ordered."""
    text = ''
    for name, of in (('up to 64', lambda r: r['devices'] <= 64), ('from 128', lambda r: r['devices'] > 64)):
        mine = [r for r in rows if r.get('step_s') and of(r)]
        fitted = [r for r in mine if is_fitted(r)]
        regrets = [s['regret'] for k, s in cells_of(mine).items() if 'regret' in s]
        text += '| %s | %d, %s | %d, %s | %d | %s |\n' % (
            name, len(fitted), mape(fitted), len(mine) - len(fitted), mape([r for r in mine if not is_fitted(r)]),
            len(regrets), '%.1f %%, %.0f %%' % (statistics.fmean(regrets), max(regrets)) if regrets else '')
    return text


def staged(rows):
    """Rows of the table of pipeline stages: by model, all rows, those of tensor parallelism of 4 and more, and the runs in
    which the model had no stages beside them."""
    text, models = '', {}
    for r in rows:
        models.setdefault(r['group'], []).append(r)
    for group, mine in sorted(models.items()):
        some = [r for r in mine if r.get('pp', 1) > 1]
        if some:
            wide, s, both = [r for r in some if r['tp'] >= 4], score(some), score(mine)
            text += '| %s | %s | %d, %s | %s | %s | %s |\n' % (
                '%s, %d GPUs' % (' '.join(group.split('/')[:2]), some[0]['devices']), ', '.join('%d' % n for n in sorted({r['pp'] for r in some})), len(some), mape(some),
                '%d, %s' % (len(wide), mape(wide)) if wide else '', '%.1f %%' % s['regret'] if 'regret' in s else '',
                '%d, %.1f %%' % (len(mine), both['regret']) if len(mine) > len(some) else '')
    return text


def left_out(rows):
    mine = ['- %s (predicted/published %.2f): %s' % (r['id'], r['predicted']['step_time_s'] / r['step_s'], LEFT_OUT[r['id']])
            for r in rows if r['id'] in LEFT_OUT]
    return '\n'.join(mine)


def cells_of(rows):
    """Scores of every model on one cluster and number of devices."""
    cells = {}
    for r in rows:
        cells.setdefault((r['group'], r['devices']), []).append(r)
    return {k: score(v) for k, v in sorted(cells.items())}


def page(rows, scores, everything, o):
    """What `--markdown` writes: a figure beside the page, one table by group, one of all rows, one paragraph on how to read them."""
    figure = os.path.splitext(o.markdown)[0] + '.svg'
    counted = [r for r in rows if r['id'] not in LEFT_OUT]
    with open(o.markdown, 'w') as f:
        f.write("""# Predicted and published steps

```
%s
```

Every row is a training run that others published. dtplan is given its model, mesh, styles, precision, recomputation and
microbatches, a machine made from datasheets, and the efficiency of its runtime
([machine.md](../formats/machine.md#efficiency)), which `models/published/fit.py` fitted on a part of these rows. MAPE:
mean of |predicted/published - 1|. Within a group, one model on one cluster: rank correlation of the seconds of a token,
and by how much the run that is predicted to be the fastest is slower than the fastest one. Peaks of memory are
those that the allocator reserves where these were published (torchtitan), else the allocated ones.

![Predicted over published step times](%s)

| group | rows | MAPE | predicted/published | Spearman, regret | MAPE of memory |
|---|---|---|---|---|---|
""" % (o.says, os.path.basename(figure)))
        for k, s in list(scores.items()) + [('all', everything)]:
            f.write('| %s | %d | %s |\n' % (k, max(x['n'] for x in (s.get('time'), s.get('memory')) if x), cells(s)))
        f.write("""
How to read it: a group near 1 with a high rank correlation is one whose runs dtplan would have ordered as they turned
out. Weak rows: vTrain's state no precision (16 bits are assumed), and its A100 networks are assumed. Its small
steps wait for the host (45 us a kernel under Megatron, which these rows alone tell); over 8-way tensor parallelism with
several microbatches they still take up to 1.6 times the prediction. Its Megatron has attention with scores in memory,
which takes 7 times as long as FlashAttention 2.
paxml's 5B and MaxText's 70B have one set, and no share of products meets both (0.79 and 1.0). Sets of V100 and TPU are borrowed.

Rows that the sets were fitted on, and rows that are only predicted; of nanotron's those with tensor parallelism inside
of a host chose one constant of the network, on any number of hosts. Cells are a model on a number of GPUs of one
cluster with three configurations and more.

| GPUs | fitted | only predicted | cells | regret: mean, worst |
|---|---|---|---|---|
%s
| runtime | card | fitted on | rows of models | MAPE | only predicted | rows of models | MAPE |
|---|---|---|---|---|---|---|---|
%s
Runs with pipeline stages (1F1B, everything recomputed); no set was fitted on them. Runs of 39.1B with 2-way tensor
parallelism take up to 1.5 times as long as predicted, also where the same model without tensor parallelism is met, and
runs that differ in the microbatch alone differ by 30 %%. Of Korthikanti's, 175B and 530B had an interleaved schedule,
which is priced as 1F1B here. nanotron's 80B is met with 4-way tensor parallelism; with 8-way it takes up to 2.3 times the
prediction, and other runs than these best ones 2 to 10 times. The last column has the runs without stages of the same model beside them.

| model | stages | rows, MAPE | tensor parallelism from 4 | regret | with runs without stages |
|---|---|---|---|---|---|
%s
Beyond a factor of three, and in no figure:

%s

Shares of the measured parts that training reaches: of products (the clock under sustained load), of the memory bandwidth
(norms, casts, optimizer, loss in f32), of the attention kernel, and what the host takes for a kernel. Launches, waiting
and exposed communication are what dtplan predicts.

| machine | runtime | products | memory | attention | host |
|---|---|---|---|---|---|
%s
| row | devices | length | tensor parallel, stages | microbatch, number | recomputed | published | predicted | GiB | predicted |
|---|---|---|---|---|---|---|---|---|---|
""" % (sizes(counted), runtimes(counted), staged(counted), left_out(rows), shares(o)))
        for r in rows:
            p, tokens = r['predicted'], r.get('step_s')
            f.write('| %s %s | %d | %d | %d%s | %s, %d | %s | %s | %s | %s | %s |\n' % (
                r['id'], r['group'].split('/')[1], r['devices'], r['seq'], r['tp'],
                ', %d' % r['pp'] if r.get('pp', 1) > 1 else '', r['microbatch'], r['grad_accum'],
                r['recompute'], '%.4g s' % tokens if tokens else '', '%.4g s' % p['step_time_s'] if tokens else '',
                '%.2f' % r['memory_gib'] if r.get('memory_gib') else '',
                '%.2f' % peak_gib(r) if r.get('memory_gib') else ''))
    with open(o.markdown, encoding='utf-8') as f:
        found = plot.points(f.read(), rows)
    if found:
        with open(figure, 'w', encoding='utf-8') as f:
            f.write(plot.draw(found))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('rows', nargs='+')
    a.add_argument('--dtplan', default='dtplan')
    a.add_argument('--models', default='models', help='folder of the models (default: models)')
    a.add_argument('--machine-dir', help='folder whose NAME.RUNTIME.json or NAME.json goes before the machine NAME')
    a.add_argument('--target', default='torch', help="target of all rows ('' for none; default: torch)")
    a.add_argument('--compiled', help='target of rows with compiled or fused kernels (default: --target)')
    a.add_argument('--selective', help='value of --remat for rows with selective recomputation (default: as in the row)')
    a.add_argument('--runtime-option', help='option of dtplan plan that takes the runtime of a row, such as --runtime')
    a.add_argument('--plan-option', action='append', default=[], help='one more argument of dtplan plan')
    a.add_argument('--only', default='*', help='glob of id, family, model, group or runtime')
    a.add_argument('--jobs', type=int, default=1)
    a.add_argument('--timeout', type=float, default=600.0)
    a.add_argument('--quiet', action='store_true', help='no line per row')
    a.add_argument('--json', help='write rows with predictions, and scores')
    a.add_argument('--markdown', help='write scores and rows as a page, and its figure beside it')
    a.add_argument('--suite', help='write the rows as a suite of dtplan regress instead of predicting them')
    a.add_argument('--every', type=int, default=1, help='predict the first of so many rows only')
    a.add_argument('--most-mape', type=float)
    a.add_argument('--most-group-mape', type=float, help='of every group of 4 and more')
    a.add_argument('--least-spearman', type=float, help='median of the groups of 8 and more')
    a.add_argument('--most-regret', type=float, help='mean of the groups of 8 and more')
    a.add_argument('--most-memory-mape', type=float)
    o = a.parse_args()
    said = [a for i, a in enumerate(sys.argv) if '--markdown' not in (a, sys.argv[i - 1])]
    o.says = in_lines([shlex.quote(a) for a in said])
    rows = [r for f in o.rows for r in read_rows(f)]
    rows = rows[::o.every]
    rows = [r for r in rows if any(fnmatch.fnmatch(str(r.get(k, '')), o.only) for k in ('id', 'family', 'model', 'group', 'runtime'))]
    if o.suite:
        suite = {'format': 'dtp.suite/1', 'two_sided': True, 'tolerance': {'step': 0.02, 'peak': 0.02},
                 'cases': [case(r, o) for r in rows]}
        json.dump(suite, open(o.suite, 'w'), indent=1)
        return 0
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        done = list(pool.map(lambda r: predict(r, o), rows))
    good, bad = [r for r in done if r['predicted']], [r for r in done if not r['predicted']]
    if not o.quiet:
        print('%-5s %-40s %4s %6s %3s %3s %4s %-14s %10s %10s %6s %8s %8s' % ('id', 'group', 'n', 'length', 'tp', 'mb', 'acc',
              'recompute', 'published', 'predicted', 'ratio', 'GiB', 'ours'))
        for r in good:
            p = r['predicted']
            print('%-5s %-40s %4d %6d %3d %3s %4d %-14s %10s %10.4f %6s %8s %8.2f' % (
                r['id'], r['group'][:40], r['devices'], r['seq'], r['tp'], r['microbatch'], r['grad_accum'],
                r['recompute'][:14], '%.4f' % r['step_s'] if r.get('step_s') else '-', p['step_time_s'],
                '%.3f' % (p['step_time_s'] / r['step_s']) if r.get('step_s') else '-',
                '%.2f' % r['memory_gib'] if r.get('memory_gib') else '-', peak_gib(r)))
        print()
    for r in bad:
        print('%s failed: %s' % (r['id'], r['why']))
    print('%-48s %4s %7s %6s %11s %8s %7s' % ('group', 'n', 'MAPE', 'median', 'range', 'Spearman', 'regret'))
    groups = {}
    counted = [r for r in good if r['id'] not in LEFT_OUT]
    for r in counted:
        groups.setdefault(r['group'], []).append(r)
    scores = {k: score(v) for k, v in sorted(groups.items())}
    for k, s in scores.items():
        print(line(k, s))
    everything, fitted = score(counted), score([r for r in counted if is_fitted(r)])
    if 'spearman' in everything:
        del everything['spearman'], everything['regret']
    print(line('all', everything))
    misses = ['%d rows failed' % len(bad)] if bad else []

    def bar(what, value, limit, least=False):
        if limit is not None and value is not None and (value < limit if least else value > limit):
            misses.append('%s is %.3g, the bar is %.3g' % (what, value, limit))
    bar('MAPE of fitted rows', fitted.get('time', {}).get('mape'), o.most_mape)
    bar('MAPE of memory', fitted.get('memory', {}).get('mape'), o.most_memory_mape)
    for k, s in scores.items():
        n = sum(1 for r in groups[k] if is_fitted(r))
        if n >= 4 and n == s['time']['n']:
            bar('MAPE of ' + k, s['time']['mape'], o.most_group_mape)
    large = [s for s in scores.values() if s.get('time', {}).get('n', 0) >= 8]
    if large:
        rho, regret = statistics.median(s['spearman'] for s in large), statistics.fmean(s['regret'] for s in large)
        print('groups of 8 and more: %d, median Spearman %.3f, mean regret %.1f%%' % (len(large), rho, regret))
        bar('median Spearman', rho, o.least_spearman, True)
        bar('mean regret', regret, o.most_regret)
    for m in misses:
        print('MISSED: ' + m)
    if o.markdown:
        page(good, scores, everything, o)
    if o.json:
        json.dump({'rows': done, 'scores': scores, 'all': everything, 'missed': misses}, open(o.json, 'w'), indent=1)
    return 1 if misses else 0


if __name__ == '__main__':
    sys.exit(main())
