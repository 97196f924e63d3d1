#!/usr/bin/env python3
"""Fits the network levels of the shipped machine files to measured collectives.

  collectives.py [options]

Rows of measured/collectives.csv (inside of a host) and measured/hosts.csv (across hosts, runs without complaint and
without a forced algorithm) are split by a hash: a fifth is kept for the check. The others are written as nccl-tests
print them, and `dtplan machines --nccl-tests` fits the levels; `dtplan machines --check` prices the fifth. What comes
out is compared with the machine files, or written into them (--write). Exit status 1 when a file differs."""
import argparse, csv, hashlib, json, os, re, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PERF = {'all_reduce': 'all_reduce_perf', 'all_gather': 'all_gather_perf', 'reduce_scatter': 'reduce_scatter_perf',
        'alltoall': 'alltoall_perf', 'sendrecv': 'sendrecv_perf'}
# Machine file, its levels inside of a host, the device of their rows.
INSIDE = [('a100_8', ['nvlink'], 'a100'), ('h100_64', ['nvlink'], 'h100'), ('h200_64', ['nvlink'], 'h200'),
          ('b200_64', ['nvlink'], 'b200'), ('gb200_72', ['nvlink'], 'gb200'),
          ('l40s_8', ['switch', 'socket', 'host'], 'l40s')]
# Machine file, level, runs of hosts.csv: 8 adapters of 400 Gb/s a host. A run of all-to-all on B200 stands for all
# devices, because adapters bound it.
ALL_TO_ALL = ['110', '111']
# Of messages to the next rank, one of which goes between two hosts: the same.
SENDS = ['112', 'p2p-1', 'p2p-2']
SHIPPED = [('h100_64', 'ib', ['8', '15', '47', '57', '58', '95', '106'] + ALL_TO_ALL + SENDS),
           ('h200_64', 'ib', ['8', '15', '47', '57', '58', '95', '106'] + ALL_TO_ALL + SENDS),
           ('b200_64', 'ib', ['43', '46', '107', '106'] + ALL_TO_ALL + SENDS)]
# Networks of no shipped machine, for the check: name, machine whose host it is, B/s of a host, size, runs.
OTHER = [('aws_3200', 'h100_64', 4e11, ['3', '68', '69']), ('aws_b200', 'b200_64', 4e11, ['60']),
         ('aws_b300', 'b200_64', 8e11, ['64', '66']), ('tcpxo', 'h100_64', 2e11, ['4']),
         ('tcpx', 'h100_64', 1e11, ['45', '48']), ('aws_400', 'a100_8', 5e10, ['1']),
         ('hdr_4', 'a100_8', 1e11, ['73']), ('oci_1600', 'a100_8', 2e11, ['36'])]
# What no run of measured/hosts.csv has on such a network, all-gathers and all-reduces over more than two hosts: medians by
# size of runs that were not published row by row. They follow from what release 29cfbc0a predicted (4.5 to 5840 us) over
# predicted / measured (0.20, 0.45, 0.82; 0.19, 0.50, 0.92; 0.48, 0.98). Collective, hosts of 8 GPUs, bytes, us.
MEDIANS = [('all_gather', 2, 1 << 16, 34.5), ('all_gather', 2, 1 << 24, 135.0), ('all_gather', 2, 1 << 30, 3070.0),
           ('all_reduce', 4, 1 << 16, 39.5), ('all_reduce', 4, 1 << 24, 178.0), ('all_reduce', 4, 1 << 30, 5830.0),
           ('all_reduce', 8, 1 << 24, 385.0), ('all_reduce', 8, 1 << 30, 5740.0)]
# Who borrows: file, its levels, whose. Ramps follow the bandwidth.
BORROWERS = [('h100_128', 'nvlink', 'h100_64', 'nvlink'), ('h100_128', 'ib', 'h100_64', 'ib'),
             ('h100_512', 'nvlink', 'h100_64', 'nvlink'), ('h100_512', 'ib', 'h100_64', 'ib'),
             ('h100_512_efa', 'nvlink', 'h100_64', 'nvlink'), ('a100_512_efa', 'nvlink', 'a100_8', 'nvlink'),
             ('a100_512', 'nvlink', 'a100_8', 'nvlink'), ('a100_512', 'ib', 'h100_64', 'ib'),
             ('mi300x_64', 'xgmi', 'a100_8', 'nvlink'), ('mi300x_64', 'ib', 'h100_64', 'ib'),
             ('v100_16', 'nvlink', 'a100_8', 'nvlink'), ('v100_16', 'ib', 'h100_64', 'ib'),
             ('l4_16', 'pcie', 'l40s_8', 'socket'), ('l4_16', 'ethernet', 'h100_64', 'ib')]


# What messages reach of an adapter of 200 Gb/s (run 1272): there it is the adapter that bounds them, at 400 Gb/s one connection.
MOST_SENT = 0.97


def kept(*key):
    """Whether a row is in the fifth of the check."""
    return int(hashlib.sha256(' '.join(key).encode()).hexdigest(), 16) % 5 == 0


def key_of(r):
    return (r['run'], r['collective'], r['hosts'], r['bytes']) if 'run' in r else (
        r['device'], r['collective'], r['ranks'], r['bytes'])


def bus_of(collective, ranks):
    """What nccl-tests call busbw over algbw."""
    return 1 if collective == 'sendrecv' else (2 if collective == 'all_reduce' else 1) * (ranks - 1) / ranks


def us_of(r):
    if 'ms_median' in r:
        return 1e3 * float(r['ms_median'])
    if r['us']:
        return float(r['us'])
    n = int(r['hosts']) * int(r['gpus_per_host'])
    return bus_of(r['collective'], n) * int(r['bytes']) / float(r['busbw_GBps']) / 1e3


def as_printed(rows):
    """Rows as nccl-tests print them: a table for every collective and group."""
    tables = {}
    for r in rows:
        hosts = int(r.get('hosts', 1))
        ranks = hosts * int(r['gpus_per_host']) if 'hosts' in r else int(r['ranks'])
        tables.setdefault((r['collective'], ranks, hosts), []).append((int(r['bytes']), us_of(r)))
    text = ''
    for (kind, ranks, hosts), points in sorted(tables.items()):
        text += '# Collective test starting: %s\n# nThread 1 nGpus 1\n' % PERF[kind]
        text += ''.join('#  Rank %2d Group 0 Pid 1 on host%d device %d\n' % (i, i * hosts // ranks, i)
                        for i in range(ranks))
        text += '#       size         count      type   redop    root     time   algbw   busbw #wrong\n'
        for size, us in sorted(points):
            bus = bus_of(kind, ranks)
            text += '%d 1 float sum -1 %.6g %.6f %.6f 0\n' % (size, us, size / us / 1e3, bus * size / us / 1e3)
        text += '# Avg bus bandwidth    : 1\n'
    return text


def run(*args):
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit('%s\n%s' % (' '.join(args), p.stderr.strip()))
    return p.stdout


def fit(o, machine, level, rows):
    """Fits a level of a machine file in place."""
    printed = os.path.join(o.folder, 'printed.txt')
    open(printed, 'w').write(as_printed(rows))
    return run(o.dtplan, 'machines', machine, '--nccl-tests', printed, '--level', level, '-o', machine)


def check(o, machine, rows):
    """The kept rows, priced: (row, predicted / measured)."""
    path = os.path.join(o.folder, 'kept.csv')
    out = []
    for r in rows:
        with open(path, 'w', newline='') as f:
            w = csv.DictWriter(f, list(r))
            w.writeheader()
            w.writerows([r])
        p = json.loads(run(o.dtplan, 'machines', machine, '--check', path, '--json'))['rows'][0]
        out.append((r, p['predicted_s'] / p['measured_s']))
    return out


def line(name, ratios):
    return '| %s | %d | %.1f %% | %.3f |' % (name, len(ratios), 100 * statistics.fmean(abs(x - 1) for x in ratios),
                                            statistics.median(ratios)) if ratios else None


def table(title, priced, bounds, names):
    print('\n%s\n\n| | rows | MAPE | median |\n|---|---|---|---|' % title)
    size = lambda r: sum(int(r['bytes']) >= b for b in bounds)
    kinds = sorted({r['collective'] for r, _ in priced})
    devices = sorted({r.get('device') or r['network'] for r, _ in priced})
    lines = [line(n, [x for r, x in priced if size(r) == i]) for i, n in enumerate(names)]
    for k in kinds:
        lines.append(line(k, [x for r, x in priced if r['collective'] == k]))
        lines += [line('%s, %s' % (k, n), [x for r, x in priced if r['collective'] == k and size(r) == i])
                  for i, n in enumerate(names)]
    lines += [line(d, [x for r, x in priced if (r.get('device') or r['network']) == d]) for d in devices]
    print('\n'.join(x for x in lines + [line('all', [x for _, x in priced])] if x))


def levels_of(path):
    return {v['name']: v for v in json.load(open(path))['levels']}


def rounded(rates):
    return {k: {n: float('%.4g' % x) for n, x in v.items()} for k, v in rates.items()}


def text_of(level):
    head = ', '.join('"%s": %s' % (k, json.dumps(v)) for k, v in level.items() if k != 'collectives')
    if not level.get('collectives'):
        return '    {%s}' % head
    rates = ',\n'.join('       "%s": {%s}' % (k, ', '.join('"%s": %s' % (n, json.dumps(x)) for n, x in v.items()))
                       for k, v in level['collectives'].items())
    return '    {%s, "collectives": {\n%s}}' % (head, rates)


def settle(o, name, rates):
    """Compares or writes the levels of a machine file; whether they differed."""
    path = os.path.join(o.models, 'machines', name + '.json')
    text, levels = open(path).read(), list(levels_of(path).values())
    before = json.dumps(levels)
    for v in levels:
        if v['name'] in rates:
            v['collectives'] = rounded(rates[v['name']])
    if json.dumps(levels) == before:
        return False
    print('%s: the levels differ%s' % (path, ', written' if o.write else ''))
    if o.write:
        text = re.sub(r'  "levels": \[\n.*?\n  \],\n',
                      lambda _: '  "levels": [\n%s\n  ],\n' % ',\n'.join(map(text_of, levels)), text, flags=re.S)
        open(path, 'w').write(text)
    return not o.write


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('--dtplan', default='dtplan')
    a.add_argument('--models', default=os.path.dirname(HERE))
    a.add_argument('--measured', default=os.path.join(HERE, 'measured'))
    a.add_argument('--write', action='store_true', help='into the machine files')
    o = a.parse_args()
    inside = list(csv.DictReader(open(os.path.join(o.measured, 'collectives.csv'))))
    hosts = [r for r in csv.DictReader(open(os.path.join(o.measured, 'hosts.csv')))
             if r['health'] != 'complaint' and r['algo_env'] == 'none' and r['collective'] in PERF]
    inside_priced, hosts_priced, rates = [], [], {}
    with tempfile.TemporaryDirectory() as o.folder:
        copy = lambda name: os.path.join(o.folder, name + '.json')
        for name, levels, device in INSIDE:
            open(copy(name), 'w').write(open(os.path.join(o.models, 'machines', name + '.json')).read())
            for i, level in enumerate(levels):
                mine = [r for r in inside if r['device'] == device and
                        (len(levels) == 1 or int(r['ranks']) == 2 ** (i + 1))]
                fit(o, copy(name), level, [r for r in mine if not kept(*key_of(r))])
            inside_priced += check(o, copy(name), [r for r in inside if r['device'] == device and kept(*key_of(r))])
        extra = [{'collective': k, 'gpus_per_host': 8, 'hosts': h, 'bytes': b, 'us': us} for k, h, b, us in MEDIANS]
        for name, level, runs in SHIPPED:
            mine = [r for r in hosts if r['run'] in runs]
            m = json.load(open(copy(name)))
            m['levels'][1]['size'] = 64  # runs may have more hosts than the file
            json.dump(m, open(copy(name), 'w'))
            print(fit(o, copy(name), level, [r for r in mine if not kept(*key_of(r))] + extra))
            own = [r for r in mine if kept(*key_of(r)) and is_of(r, name)]
            hosts_priced += check(o, copy(name), own)
        for name, of, bandwidth, runs in OTHER:
            m = json.load(open(copy(of)))
            mine = [r for r in hosts if r['run'] in runs]
            m['name'] = mine[0]['gpu'].split('-')[0]
            m['levels'] = m['levels'][:1] + [{'name': 'net', 'size': 64, 'latency_s': 1e-5, 'bw_Bps': bandwidth}]
            json.dump(m, open(copy(name), 'w'))
            fit(o, copy(name), 'net', [r for r in mine if not kept(*key_of(r))])
            hosts_priced += check(o, copy(name), [r for r in mine if kept(*key_of(r))])
        for name in {n for n, _, _ in INSIDE}:
            rates[name] = {k: v['collectives'] for k, v in levels_of(copy(name)).items() if 'collectives' in v}
    for name, level, of, its in BORROWERS:
        wide = {n: next(v['bw_Bps'] for k, v in levels_of(os.path.join(o.models, 'machines', n + '.json')).items()
                        if k == l) for n, l in ((name, level), (of, its))}
        lent = {k: dict(v, ramp_bytes=v['ramp_bytes'] * wide[name] / wide[of]) for k, v in rates[of][its].items()}
        if 'collective_permute' in lent:  # the rate of a connection, as dtp_level_borrow has it
            lent['collective_permute']['share'] = min(
                lent['collective_permute']['share'] * wide[of] / wide[name], MOST_SENT)
        rates.setdefault(name, {})[level] = lent
    nvlink = [(r, x) for r, x in inside_priced if r['device'] != 'l40s']
    table('Kept rows on NVLink', nvlink, (2**20, 2**26), ('< 1 MiB', '1 to 64 MiB', '>= 64 MiB'))
    table('Kept rows of l40s (PCIe)', [(r, x) for r, x in inside_priced if r['device'] == 'l40s'], (2**20, 2**26),
          ('< 1 MiB', '1 to 64 MiB', '>= 64 MiB'))
    healthy = [(r, x) for r, x in hosts_priced if r['health'] == 'ok']
    table('Kept rows across hosts', healthy, (2**20, 2**28), ('< 1 MiB', '1 to 256 MiB', '>= 256 MiB'))
    differ = [n for n in sorted(rates) if settle(o, n, rates[n])]
    return 1 if differ else 0


def is_of(row, machine):
    """Whether the host of a row is that of the machine; all-to-alls over hosts are checked on B200."""
    return row['gpu'].split('-')[0].lower() == machine.split('_')[0]


if __name__ == '__main__':
    sys.exit(main())
