#!/usr/bin/env python3
"""The wheel as people have it: a fresh virtual environment, no compiler on PATH, no source tree. Part of ./dev interop python.

What needs PyTorch runs with the packages of another interpreter, named by a .pth file: the environment has the wheel alone.
Usage: acceptance.py WHEEL TORCH_PYTHON [STEP...]    steps: wheel roots three meta examples notebook words types
"""
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
THREE = [(2, name, "x:2", "machine=cpu_2") for name in ("nanogpt", "llama", "qwen3", "vit")] + \
        [(4, name, "dp:2,tp:2", "rules=batch:dp") for name in ("nanogpt", "llama", "qwen3", "vit")] + \
        [(4, name, "dp:2,tp:2", "rules=batch:dp;heads:tp;d_ff:tp", "expressible=torch") for name in ("llama", "qwen3")] + \
        [(4, name, "dp:2,tp:2", "rules=batch:dp;d_ff:tp", "expressible=torch") for name in ("nanogpt", "vit")] + \
        [(4, "nanogpt", "dp:2,tp:2", "rules=batch:dp;heads:tp"),  # by placements: parts of a fused weight
         (4, "nanogpt", "dp:2,tp:2", "machine=h100_64", "objective=memory"),  # copies inside of shards, whole parameters beside them
         (2, "llama", "x:2", "objective=memory")]  # the table's result is split over the sequence
EXAMPLES = {"with_torchrun.py": 2, "with_accelerate.py": 0, "with_torchtitan.py": 2, "with_trainer.py": 2}


class Place:
    """A virtual environment that has the wheel, and a folder to work in, with copies of scripts and examples."""

    def __init__(self, folder, wheel, torch_python):
        self.work = os.path.join(folder, "work")
        venv = os.path.join(folder, "venv")
        shutil.copytree(HERE, self.work, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(os.path.join(ROOT, "examples", "python"), self.work, dirs_exist_ok=True)
        subprocess.run([torch_python, "-m", "venv", venv], check=True)
        self.python = os.path.join(venv, "bin", "python")
        self.env = {"PATH": os.path.join(venv, "bin"), "HOME": folder, "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        self.run([self.python, "-m", "pip", "install", "--quiet", "--no-index", wheel])
        self.others = subprocess.run([torch_python, "-c", "import torch; print(torch.__path__[0])"], check=True,
                                     capture_output=True, text=True).stdout.strip()

    def with_torch(self):
        site = self.run([self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        with open(os.path.join(site, "others.pth"), "w", encoding="utf-8") as file:
            file.write(os.path.dirname(self.others) + "\n")

    def run(self, words, code=0, **options):
        words[0] = shutil.which(words[0], path=self.env["PATH"]) or words[0]
        done = subprocess.run(words, env=self.env, cwd=self.work, capture_output=True, text=True, check=False,
                              **{"timeout": 1200, **options})
        if done.returncode != code:
            sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-3000:]}")
        return done.stdout

    def torchrun(self, n, *words):
        return self.run([self.python, "-m", "torch.distributed.run", "--nproc-per-node", str(n), *words])


def wheel(place, path):
    text = place.run(["dtplan", "plan", "llama3_8b", "--devices", "8", "--machine", "h100_64", "--remat", "layer"])
    for part in ("examples", "errors", "interrupt"):
        place.run([place.python, "package.py", "-", part])
    place.run(["dtrun", "run", "mlp_digits", "--comm", "sim", "--steps", "3", "--quiet"])
    manual = os.path.join(os.path.dirname(os.path.dirname(place.python)), "share", "man", "man1", "dtplan-plan.1")
    if not os.path.exists(manual):
        sys.exit(f"there is no {manual}")
    step = re.search(r"^this plan +(\S+ \S+)", text, re.M).group(1)
    print(f"{os.path.basename(path)}: {os.path.getsize(path) / 1e6:.1f} MB; llama3_8b on 8 devices: {step}")


def roots(place, path):
    """In roots that have python3 and nothing else; only where debootstrap may run."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("bare roots: left out: they need root and debootstrap")
        return
    place.run([place.python, "-m", "pip", "download", "--quiet", "--no-deps", "pip"])
    pip = next(name for name in os.listdir(place.work) if name.startswith("pip-"))
    script = os.path.join(ROOT, "tests", "tools", "wheel_roots.sh")
    if subprocess.run(["bash", script, path, os.path.join(place.work, pip)], check=False).returncode:
        sys.exit("the wheel in bare roots")


def three(place):
    for n in sorted({case[0] for case in THREE}):
        print(place.torchrun(n, "three_lines.py", *(" ".join(words) for m, *words in THREE if m == n)).strip(), flush=True)


def meta(place):
    print(place.run([place.python, "meta_70b.py"]).strip())


def examples(place):
    for name, n in EXAMPLES.items():
        text = place.torchrun(n, name) if n else place.run([place.python, name])
        print(f"{name}: {text.strip().splitlines()[-1]}")


def notebook(place):
    """By nbconvert, in this environment's kernel; its page, taken out of it, in Chromium (tests/tools/page_browser.py)."""
    place.run([place.python, "-m", "pip", "install", "--quiet", "nbconvert", "ipykernel"])
    began = time.monotonic()
    place.run([place.python, "-m", "nbconvert", "--to", "html", "--execute", "plan_70b.ipynb"])
    seconds = time.monotonic() - began
    folder = os.path.join(ROOT, "build", "interop", "notebook")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    shutil.copy(os.path.join(place.work, "plan_70b.html"), folder)
    with open(os.path.join(folder, "plan_70b.html"), encoding="utf-8") as file:
        text = file.read()
    pages = re.findall('<iframe srcdoc="([^"]*)"', text)
    if len(pages) != 1 or "zero3" not in text or "tensor parallel" not in text:
        sys.exit(f"the notebook has {len(pages)} pages of plans, or lacks the baselines")
    page = os.path.join(folder, "page.html")
    with open(page, "w", encoding="utf-8") as file:
        file.write(html.unescape(pages[0]))
    browser = os.path.join(ROOT, "tests", "tools", "page_browser.py")
    looked = subprocess.run([sys.executable, browser, "--shots", folder, page], capture_output=True, text=True, check=False)
    if looked.returncode not in (0, 77):  # 77: there is no Chromium, as it says
        sys.exit(looked.stdout + looked.stderr)
    print(f"notebook: {seconds:.0f} s, {len(text) / 1e6:.1f} MB; {looked.stdout.strip()}")


def words(place):
    print(place.run([place.python, "words.py"]).strip())
    print("docstrings: " + place.run([place.python, "package.py", "-", "examples", "--all"]).strip())


def types(place):
    """Of the package, and of a script that uses what is installed."""
    place.run([place.python, "-m", "pip", "install", "--quiet", "mypy"])
    for words, folder in (([], ROOT), (["--strict", "typed.py"], place.work)):
        done = subprocess.run([place.python, "-m", "mypy", *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout)
        print(f"mypy --strict {' '.join(words[1:])}: {done.stdout.strip()}")


def main():
    path, torch_python, *steps = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder, os.path.abspath(path), torch_python)
        if not steps or "wheel" in steps:
            wheel(place, path)
        if not steps or "roots" in steps:
            roots(place, path)
        place.with_torch()
        for step in (three, meta, examples, words, notebook, types):
            if not steps or step.__name__ in steps:
                step(place)


main()
