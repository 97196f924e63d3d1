"""Measures PyTorch on this machine for `dtrun bench --as torch`, which gives it the list and fits a machine file to the times.

The list names calls (op and operands as in dtplan's op table), copies and collectives. Kernels are called as in training: operands
require gradients, gradients come from the node that the forward call left. Every rank runs each call at the same time; a time is the
lower decile of its repeats on the slowest rank. What PyTorch has no one call for is left out (null); dtplan prices such ops as others.

In a training step the host does more for a kernel than a bare call does: modules, views, the autograd engine, the optimizer. What
that is comes from a step of a small model whose kernels take next to no time: on the CPU it is added to every kernel, on a card it is
host_s. Collectives are those of DTensor, with its host time.

Usage: dtp_torch_bench.py LIST.json    prints {"format": "dtp.torch_bench/1", ...}; exit code 3: there is no torch
"""
import contextlib
import json
import math
import os
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
except ImportError:
    sys.exit(3)

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64, "i32": torch.int32,
         "i64": torch.int64, "bool": torch.bool}
POOL_BYTES, MAX_SETS = {"cpu": 64 << 20, "cuda": 512 << 20}, 16  # operands come from memory, as in a step
BELOW = 256  # integers


# ---- operands ----

def tensor(spec, device, grad):
    """spec: [dtype, dim, size, ...]. Integers are i64, as PyTorch's losses and tables take them."""
    kind, shape = spec[0], spec[2::2]
    if kind in ("i32", "i64"):
        return torch.randint(0, BELOW, shape, device=device)
    if kind == "bool":
        return torch.rand(shape, device=device) < 0.5
    x = torch.rand(shape, device=device).mul_(0.9).add_(0.05).to(TYPES[kind])
    return x.requires_grad_(grad)


def bytes_of(spec):
    return math.prod(spec[2::2]) * (TYPES[spec[0]].itemsize)


def dims(spec):
    return spec[1::2]


def spread(x, here, there):
    """x with the dims of a result that broadcasts it."""
    if here == there:
        return x
    order = [d for d in there if d in here]
    x = x.permute([here.index(d) for d in order])
    return x.reshape([x.shape[order.index(d)] if d in here else 1 for d in there])


# ---- calls: what takes the operands of one call gives a function of no arguments, or None ----

UNARY = {"neg": torch.neg, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "square": torch.square,
         "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": lambda x: F.gelu(x, approximate="tanh"),
         "gelu_erf": F.gelu, "erf": torch.erf, "silu": F.silu, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor,
         "sin": torch.sin, "cos": torch.cos, "reciprocal": torch.reciprocal, "log1p": torch.log1p, "expm1": torch.expm1,
         "softplus": F.softplus, "leaky_relu": F.leaky_relu, "elu": F.elu, "clamp": lambda x: torch.clamp(x, 0.0, 0.5),
         "scale": lambda x: x * 0.5, "pow": lambda x: x ** 2.5, "softmax": lambda x: torch.softmax(x, -1),
         "log_softmax": lambda x: torch.log_softmax(x, -1), "logsumexp": lambda x: torch.logsumexp(x, -1),
         "norm": lambda x: torch.linalg.vector_norm(x, dim=-1), "var": lambda x: torch.var(x, -1), "std": lambda x: torch.std(x, -1),
         "cumsum": lambda x: torch.cumsum(x, -1), "argmax": lambda x: torch.argmax(x, -1), "argmin": lambda x: torch.argmin(x, -1),
         "topk": lambda x: torch.topk(x, 8), "dropout": lambda x: F.dropout(x, 0.1), "fill": torch.ones_like,
         "logical_not": torch.logical_not, "any": lambda x: torch.any(x, -1), "all": lambda x: torch.all(x, -1)}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "max": torch.maximum, "min": torch.minimum,
          "mod": torch.remainder, "compare": torch.lt, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
          "logical_xor": torch.logical_xor}
GRADIENTS = {f"{name}_grad": name for name in ("tanh", "sigmoid", "relu", "gelu", "gelu_erf", "erf", "silu", "leaky_relu", "elu",
                                               "clamp", "softmax", "log_softmax", "softplus")}


def product(specs, out, x):
    """An einsum as PyTorch computes it: products as matmul over transposed views, sums and transpositions by name."""
    letters, out = {}, dims(out)

    def word(names):
        return "".join(letters.setdefault(d, chr(97 + len(letters))) for d in names)

    if len(x) == 1:
        here = dims(specs[0])
        gone = [i for i, d in enumerate(here) if d not in out]
        if gone:
            return lambda: x[0].sum(gone)
        return lambda: x[0].permute([here.index(d) for d in out]).contiguous()
    if len(x) == 2 and len(specs[0]) == len(specs[1]) == 5 and len(out) == 2:
        m, n = out
        a = x[0] if dims(specs[0])[0] == m else x[0].t()
        b = x[1] if dims(specs[1])[1] == n else x[1].t()
        return lambda: torch.mm(a, b)
    text = ",".join(word(dims(s)) for s in specs) + "->" + word(out)
    return lambda: torch.einsum(text, *x)


def layer_norm(specs, out, x):
    return lambda: F.layer_norm(x[0], x[1].shape, x[1], x[2], 1e-5)


def rms_norm(specs, out, x):
    return lambda: F.rms_norm(x[0], x[1].shape, x[1], 1e-6)


def backward(y, inputs, g):
    """The nodes that made y: one is called as it is, several as autograd does."""
    node, leaves = y.grad_fn, {f[0] for f in y.grad_fn.next_functions}
    if all(f is None or f.name().endswith("AccumulateGrad") for f in leaves):
        return lambda: node(g)
    return lambda: torch.autograd.grad(y, inputs, g, retain_graph=True)


def with_grad(x):
    return x.detach().clone().requires_grad_(True) if x.is_floating_point() else x


def norm_grad(forward, n_params):
    def make(specs, out, x):
        row, scale, dy = with_grad(x[0]), with_grad(x[1]), x[-1]
        params = [scale] + [with_grad(torch.zeros_like(x[1])) for _ in range(n_params - 1)]
        return backward(forward(specs, out, [row, *params])(), [row, *params], dy)

    return make


def attention(specs, out, x):
    """Operands are (sequence, heads, features), with dims of the batch before, if any."""
    q, k, v = (t.movedim(-2, 0).unsqueeze(0) if t.dim() == 3 else t.transpose(-3, -2) for t in x[:3])
    group = q.shape[1] != k.shape[1]
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, **({"enable_gqa": True} if group else {}))


def attention_grad(specs, out, x):
    q, k, v = (with_grad(t) for t in x[:3])
    y = attention(specs, out, [q, k, v])()
    return backward(y, [q, k, v], torch.rand_like(y))


def cross_entropy(specs, out, x):
    return lambda: F.cross_entropy(x[0], x[1].clamp(max=x[0].shape[-1] - 1))


def cross_entropy_grad(specs, out, x):
    logits = with_grad(x[0])
    y = cross_entropy(specs, out, [logits, x[1]])()
    loss, g = y.grad_fn, torch.ones_like(y)
    softmax = loss.next_functions[0][0]
    return lambda: softmax(loss(g))


def embedding(specs, out, x):
    return lambda: F.embedding(x[1] % x[0].shape[0], x[0])


def embedding_grad(specs, out, x):
    rows = next(n for d, n in zip(out[1::2], out[2::2]) if d not in dims(specs[1]))
    return lambda: torch.ops.aten.embedding_dense_backward(x[1].detach(), x[0] % rows, rows, -1, False)


class Step:
    """A function of no arguments that does the work of several calls."""

    def __init__(self, call, parts):
        self.call, self.parts = call, parts

    def __call__(self):
        return self.call()


def optimizer(kind):
    def make(specs, out, x):
        several = 8
        params = [x[0].detach().clone().requires_grad_(True) for _ in range(several)]
        for p in params:
            p.grad = x[1].detach().to(p.dtype)
        return Step(kind(params).step, several)

    return make


def along(f):
    return lambda specs, out, x: (lambda: f(*x))


OPS = {"einsum": product, "einsum.copy": product, "layer_norm": layer_norm, "rms_norm": rms_norm,
       "layer_norm_grad": norm_grad(layer_norm, 2), "rms_norm_grad": norm_grad(rms_norm, 1), "attention": attention,
       "attention_grad": attention_grad, "cross_entropy": cross_entropy, "cross_entropy_grad": cross_entropy_grad,
       "embedding": embedding, "embedding_grad": embedding_grad,
       "permute": product, "select": along(torch.where),
       "sgd": optimizer(lambda p: torch.optim.SGD(p, 1e-3)), "momentum": optimizer(lambda p: torch.optim.SGD(p, 1e-3, 0.9)),
       "adam": optimizer(lambda p: torch.optim.Adam(p, 1e-3)), "adamw": optimizer(lambda p: torch.optim.AdamW(p, 1e-3)),
       "concat": along(lambda *x: torch.cat(x, 0)), "stack": along(lambda *x: torch.stack(x)),
       "slice": along(lambda x: x[: x.shape[0] // 2].clone()), "roll": along(lambda x: torch.roll(x, 1, 0)),
       "pad": along(lambda x: F.pad(x, (0, 0, 0, x.shape[0] // 2))),
       "reduce": lambda specs, out, x: (lambda: x[0].sum(-1)), "accumulate": along(lambda a, b: a.add_(b))}


def call_of(sample, operands):
    """A function of no arguments that runs a call on these operands, None where PyTorch has none."""
    name, specs, out = sample["name"], sample["in"], sample["out"][0]
    if name in UNARY:
        return lambda: UNARY[name](operands[0])
    if name in BINARY and len(operands) == 2:
        a, b = (spread(x, dims(s), dims(out)) for x, s in zip(operands, specs))
        return lambda: BINARY[name](a, b)
    if name == "cast":
        kind = TYPES[out[0]]
        return lambda: operands[0].to(kind, copy=True)
    if name in GRADIENTS:
        x = with_grad(operands[0])
        y = UNARY[GRADIENTS[name]](x)
        return backward(y, [x], torch.ones_like(y))
    make = OPS.get(name)
    return make(specs, out, operands) if make else None


def move_of(name, sizes, device):
    """A staging copy, as DTensor and FSDP make them."""
    rows, cols = sizes
    x = torch.rand(rows, cols, device=device)
    if name == "slice":
        return lambda: x[:, : max(cols // 2, 1)].contiguous()
    if name == "scale":
        return lambda: x * 0.5
    if name in ("pack", "unpack") and cols > 1:
        return lambda: torch.cat(x.chunk(2, 1), 0)
    return lambda: x.clone()


# ---- timing ----

class Clock:
    """Times of calls that all ranks run at once."""

    def __init__(self, device, ranks, sample_s):
        self.device, self.ranks, self.sample_s = device, ranks, sample_s

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def meet(self):
        if self.ranks > 1:
            dist.barrier()

    def worst(self, *values):
        if self.ranks == 1:
            return list(values)
        x = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return x.tolist()

    def once(self, call, runs):
        """Seconds of a call, of several one after the other; on a card between events of its queue."""
        self.sync()
        self.meet()
        if self.device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(runs):
                call()
            end.record()
            self.sync()
            return begin.elapsed_time(end) / 1e3 / runs
        begin = time.perf_counter()
        for _ in range(runs):
            call()
        return (time.perf_counter() - begin) / runs

    def time(self, calls, row=None):
        """The lower decile; calls are taken in turn. row: so many runs at a time."""
        turn = iter(range(1 << 60))

        def call():
            return calls[next(turn) % len(calls)]()

        first, = self.worst(min(self.once(call, 1) for _ in range(3)))
        runs = row or max(1, min(100, int((1e-3 if self.device == "cuda" else 5e-5) / max(first, 1e-9))))
        repeats = max(3, min(40, int(self.sample_s / max(first * runs, 1e-9))))
        times = sorted(self.once(call, runs) for _ in range(repeats))
        return self.worst(times[repeats // 10])[0]


def operand_sets(sample, device):
    size = sum(map(bytes_of, sample["in"]))
    n = max(1, min(MAX_SETS, POOL_BYTES[device] // max(size, 1)))
    grad = sample["kind"] == "op" and not sample["name"].endswith("_grad")
    return [[tensor(spec, device, grad) for spec in sample["in"]] for _ in range(n)]


@contextlib.contextmanager
def arithmetic(name):
    """Products of f32 operands in tf32, where the list says so."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def measure_call(clock, sample):
    """Seconds of a call; null where PyTorch has none, or not for these types."""
    with arithmetic(sample["arithmetic"]), contextlib.nullcontext() if sample["kind"] == "op" else torch.no_grad():
        try:
            calls = [call_of(sample, operands) for operands in operand_sets(sample, clock.device)]
            if calls[0] is None:
                return None
            for call in calls:
                call()
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            return None  # the same on every rank: it depends on shapes and types alone
        return clock.time(calls) / getattr(calls[0], "parts", 1)


# ---- the host in a training step ----

class Block(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(d), torch.nn.Linear(d, d), torch.nn.Linear(d, d)

    def forward(self, x):
        q = self.norm(x).unflatten(-1, (-1, 4)).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.down(F.gelu(self.up(a), approximate="tanh"))


def host_seconds(clock):
    """Of a kernel in the forward and backward passes of a small model: seconds / kernels, less the bare calls."""
    from torch.utils._python_dispatch import TorchDispatchMode
    module = torch.nn.Sequential(*(Block(8) for _ in range(8))).to(clock.device)
    x = torch.rand(1, 4, 8, device=clock.device)

    class Kernels(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            self.count += 0 if op.is_view or op.namespace != "aten" or "detach" in str(op) else 1
            return op(*args, **(kwargs or {}))

    def step():
        for p in module.parameters():
            p.grad = None
        module(x).sum().backward()

    step()
    with Kernels() as kernels:
        step()
    clock.sync()
    times = []
    for _ in range(40):
        clock.meet()
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
        clock.sync()
    return clock.worst(sorted(times)[4])[0] / kernels.count


# ---- collectives ----

class Collectives:
    """Over groups of so many ranks, as DTensor runs them."""

    def __init__(self, clock):
        from torch.distributed.device_mesh import init_device_mesh
        self.clock, self.meshes, self.init = clock, {}, init_device_mesh

    def mesh(self, ranks):
        """All of them, or groups of neighbours."""
        if ranks not in self.meshes:
            shape = (dist.get_world_size() // ranks, ranks)
            self.meshes[ranks] = self.init(self.clock.device, shape, mesh_dim_names=("others", "here"))["here"]
        return self.meshes[ranks]

    def call(self, kind, ranks, n_bytes):
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
        mesh, elems = self.mesh(ranks), max(n_bytes // 4, 1)
        part = max(elems // ranks, 1)
        if kind == "collective_permute":
            return self.permute(mesh, elems)
        shape, made, to = {"all_reduce": ((elems,), Partial(), Replicate()), "all_gather": ((part,), Shard(0), Replicate()),
                           "reduce_scatter": ((part * ranks,), Partial(), Shard(0)),
                           "all_to_all": ((ranks, part), Shard(1), Shard(0))}[kind]
        x = torch.rand(shape, device=self.clock.device)

        def run():
            y = DTensor.from_local(x, mesh, [made], run_check=False).redistribute(placements=[to]).to_local()
            return y.wait() if hasattr(y, "wait") else y

        return run

    def permute(self, mesh, elems):
        group, rank, size = mesh.get_group(), mesh.get_local_rank(), mesh.size()
        ranks = dist.get_process_group_ranks(group)
        x, y = (torch.rand(elems, device=self.clock.device) for _ in range(2))

        def run():
            work = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, ranks[(rank + 1) % size], group),
                                           dist.P2POp(dist.irecv, y, ranks[(rank - 1) % size], group)])
            for w in work:
                w.wait()

        return run

    def beside(self, sample):
        """[seconds of both, by which factor products take longer beside collectives, and these beside products]: as
        executor/bench/beside.c."""
        several, rounds, ranks = 12, 9, dist.get_world_size()
        a, b = (tensor(spec, self.clock.device, False) for spec in sample["in"])
        elems = max(sample["bytes"] // 4 // ranks, 1)
        whole, part = (torch.rand(n, device=self.clock.device) for n in (elems * ranks, elems))

        def products(n):
            for _ in range(n):
                torch.mm(a, b)

        def run(n, collectives):
            """Seconds until the products are done, and until both are."""
            self.clock.sync()
            self.clock.meet()
            begin, work = time.perf_counter(), []
            for i in range(several if collectives else 0):
                work.append(dist.reduce_scatter_tensor(part, whole, async_op=True) if i % 2 == 0 else
                            dist.all_gather_into_tensor(whole, part, async_op=True))
            products(n)
            if self.clock.device == "cuda":
                torch.cuda.current_stream().synchronize()
            mid = time.perf_counter() - begin
            for w in work:
                w.wait()
            self.clock.sync()
            return mid, time.perf_counter() - begin

        def median(n, collectives):
            both = [run(n, collectives) for _ in range(rounds)]
            return self.clock.worst(*(sorted(x[k] for x in both)[rounds // 2] for k in (0, 1)))

        run(1, True)
        n = int(max(1, min(400, median(0, True)[1] / 2 / max(median(1, False)[0], 1e-9))))
        alone, coll, (mid, both) = median(n, False)[0], median(0, True)[1], median(n, True)
        done = mid + coll - both  # of the collectives, beside the products
        slower = max(mid / done, 1.0) if done > mid / 100 else 100.0
        return [both, min(max(mid / alone, 1.0), 100.0), min(slower, 100.0)]


# ---- all of it ----

def measure(rank, todo, here):
    torch.set_num_threads(todo["threads"])
    torch.manual_seed(1)
    device, ranks = todo["device"], todo["ranks"]
    if device == "cuda":
        torch.cuda.set_device(rank)
    if ranks > 1:
        dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{here}/ranks", rank=rank,
                                world_size=ranks)
    clock = Clock(device, ranks, todo["budget_s"] / max(len(todo["samples"]), 1))
    x = torch.rand(16, device=device, requires_grad=True)
    bare = clock.time([lambda: torch.neg(x)])
    host = host_seconds(clock)
    extra = 0.0 if device == "cuda" else max(host - bare, 0.0)
    collectives = Collectives(clock) if ranks > 1 else None
    times = []
    for sample in todo["samples"]:
        kind = sample["kind"]
        if kind == "collective":
            seconds = clock.time([collectives.call(sample["name"], sample["ranks"], sample["bytes"])])
        elif kind == "beside":
            seconds = collectives.beside(sample)
        elif kind == "launch":
            seconds = bare + extra
        else:
            call = [move_of(sample["name"], sample["sizes"], device)] if kind == "move" else None
            seconds = clock.time(call) if call else measure_call(clock, sample)
            updates = kind == "op" and sample["name"] in ("sgd", "momentum", "adam", "adamw")
            if seconds is not None:  # of an update dtplan takes a launch off that it shares with others
                seconds += bare + extra if updates else extra
        times.append(seconds)
        if rank == 0 and not todo["quiet"] and len(times) % 200 == 0:
            print(f"measuring PyTorch: {len(times)} of {len(todo['samples'])}", file=sys.stderr)
    if rank == 0:
        card = device == "cuda"
        result = {"format": "dtp.torch_bench/1", "torch": torch.__version__, "device": torch.cuda.get_device_name() if card else "",
                  "memory_bytes": torch.cuda.get_device_properties(rank).total_memory if card else 0,
                  "host_s": host if card else 0.0, "times": times}
        with open(f"{here}/result", "w", encoding="utf-8") as file:
            json.dump(result, file)
    if ranks > 1:
        dist.destroy_process_group()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        todo = json.load(file)
    if todo["device"] == "cuda" and torch.cuda.device_count() < todo["ranks"]:
        sys.exit(f"dtp_torch_bench: {todo['ranks']} ranks, and PyTorch has {torch.cuda.device_count()} cards")
    os.environ.setdefault("OMP_NUM_THREADS", str(todo["threads"]))
    with tempfile.TemporaryDirectory() as here:
        if todo["ranks"] == 1:
            measure(0, todo, here)
        else:
            torch.multiprocessing.spawn(measure, (todo, here), nprocs=todo["ranks"])
        with open(f"{here}/result", encoding="utf-8") as file:
            sys.stdout.write(file.read())


if __name__ == "__main__":
    main()
