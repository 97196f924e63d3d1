"""The look of every command of dtplan and dtrun.

In a pipe: the text is that of tests/tools/look/COMMAND.txt, at most 80 columns, without escape codes, picoseconds and long
numbers of bytes. On a terminal: the same text with colour; plain with NO_COLOR and on a dumb terminal; as wide as the
terminal says. What takes long shows a line of progress on a terminal and a line every ten seconds in a pipe. What is
measured is masked.

Usage: look.py BIN_DIR [text|progress|--update]
"""
import concurrent.futures
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

ROOT = os.getcwd()
GOLDEN = os.path.join(ROOT, "tests/tools/look")
DTPLAN = "plan show verify-rules viz redistribute explain report diff pareto sweep sensitivity regress machines import export solve".split()
DTRUN = "run eval sample verify regress bench".split()
MLP = "models/mlp_digits.json"
GPT = "models/gpt_bytes.json --dim layers=1 --dim length=8"
H100 = "--machine h100_64"
RULES = "--mesh x:2 --rules batch:x"
REDISTRIBUTE = "dtplan redistribute --mesh 'a:2;b:2' --shape 8,8 --from S0,S1 --to S1,R"

# Each command besides its --help; one that ends with ~ prints what is measured.
COMMANDS = [
    f"dtplan plan {MLP} {H100} --mesh 'x:2;y:2' --mode rules -o rules.plan",
    f"dtplan plan {MLP} {H100} --mesh 'x:2;y:2' --mode tensor --memory 200K -o tensor.plan",
    f"dtplan plan {MLP} {H100} --mesh x:2 --mode tensor --memory 230K --pin 'w1: hidden@x' --prices",
    f"dtplan plan {MLP} {H100} --devices 4 --mode rules",
    f"dtplan plan {MLP} {H100} --mesh 'x:2;y:2' --expressible hf",
    f"dtplan plan {MLP} {H100} --mesh x:2 --expressible torch --memory 50K",
    f"dtplan plan {MLP} {H100} --mesh x:2 --mode rules --microbatches auto --remat auto --precision bf16",
    f"dtplan plan {MLP} {H100} --mesh x:2 --mode rules --memory 10K",
    f"dtplan plan {MLP} {H100} --mesh x:2 --memory 50K",
    f"dtplan plan {MLP} --mesh x:2 --compat auto_mtf",
    f"dtplan plan models/gpt_bytes.json {H100} {RULES} --comm-report",
    f"dtplan plan {GPT} {H100} --target cpu {RULES} -o overlap.plan",
    f"dtplan plan models/llama3_8b.json {H100} --mesh 'x:8;y:8'",
    *(f"dtplan show {MLP} {H100} {RULES} --stage {stage}"
      for stage in "graph strategies problem program memory plan".split()),
    f"dtplan show models/gpt_bytes.json --dim layers=2 {H100} --mesh 'x:2;y:2' --rules 'batch:x;d_ff:y;heads:y' --comm-report",
    f"dtplan show {MLP} {RULES} --counters",
    f"dtplan show {MLP} {RULES} --trace",
    "dtplan verify-rules relu",
    f"dtplan viz {MLP} {RULES} --tensor h",
    "dtplan viz --mesh 'x:2;y:2' --shape 8,6 --layout S0,S1",
    f"{REDISTRIBUTE} {H100} --run",
    f"{REDISTRIBUTE} --compat torch --flatten a+b",
    f"dtplan explain {MLP} tensor.plan w1 {H100}",
    f"dtplan explain {MLP} tensor.plan h.mm {H100} --node --rows 3",
    f"dtplan diff {MLP} rules.plan tensor.plan {H100} --rows 4",
    f"dtplan diff {MLP} rules.plan rules.plan",
    "dtplan import gpt2.config.json -o imported.json",
    "dtplan import mistral.config.json --allow-approximate -o imported.json",
    f"dtplan pareto {MLP} {H100} --mesh 'x:2;y:2' --points 3",
    f"dtplan sweep {MLP} {H100} --devices 2,4 --price-per-hour 2",
    f"dtplan sensitivity {MLP} tensor.plan {H100} --steps 2 --only nvlink.latency",
    "dtplan machines",
    "dtplan solve models/selection/example.json ~",
    "dtplan solve --parameters",
    "dtplan regress plans.json --quiet",
    f"dtrun run {MLP} {RULES} --comm sim --steps 2 --quiet {H100} ~",
    f"dtrun run {MLP} --steps 1 --quiet ~",
    f"dtrun run {GPT} --plan overlap.plan --comm sim --steps 1 --quiet {H100} ~",
    f"dtrun verify {MLP} {RULES} --comm sim --steps 2 ~",
    f"dtrun verify {MLP} {RULES} --comm sim --steps 1 --tolerance 0 ~",
    "dtrun regress jobs.json --quiet ~",
    "dtplan help",
    "dtrun help",
]
SUITES = {
    "plans.json": """{"format": "dtp.suite/1", "cases": [
        {"name": "a case without a record", "model": "models/mlp_digits.json", "machine": "cpu_2", "mesh": "x:2",
         "mode": "rules"},
        {"name": "a case that is worse", "model": "models/mlp_digits.json", "machine": "h100_64", "mesh": "x:2",
         "mode": "rules", "recorded": {"metrics": {"step": 5e-05, "peak": 434276}, "options": {"--mesh": "x:4"},
         "model": {}, "machine": {}, "layouts": {"w1": "hidden@x"}}}]}""",
    "gpt2.config.json": '{"model_type": "gpt2"}',
    "mistral.config.json": '{"model_type": "mistral", "vocab_size": 32768, "hidden_act": "relu"}',
    "slow.json": """{"format": "dtp.suite/1", "cases": [{"name": "slow", "model": "models/llama3_70b.json",
        "machine": "h100_64", "mesh": "x:8;y:8", "mode": "tensor", "options": ["--untie", "--limit-s", "6"]}]}""",
    "jobs.json": """{"format": "dtp.jobs/1", "cases": [{"name": "a job", "model": "models/mlp_digits.json",
        "options": ["--steps", "1", "--threads", "1"]}]}""",
}
# What takes long, and what its line says.
SLOW = [
    (f"dtplan plan models/llama3_70b.json {H100} --mesh 'x:8;y:8' --mode tensor --untie", "planning"),
    (f"dtplan pareto models/llama3_70b.json {H100} --mesh 'x:8;y:8'", "planning"),
    ("dtplan plan models/gpt2_small.json --machine h100_512 --devices 512 --mode tensor --untie", "planning"),
    ("dtplan solve models/selection/S.json.gz", "solving"),
    ("dtplan verify-rules", "running rules"),
    ("dtrun bench --comm self", "measuring"),
    ("dtplan regress slow.json", "running cases"),
    (f"dtrun verify {MLP} {RULES} --comm sim --steps 100000", "verifying"),
]

END = b"\0"  # on a terminal, after what a command wrote
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def start(command, here, bin_dir, out, err, **more):
    argv = shlex.split(command.rstrip(" ~"))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    env.update({"TERM": "xterm", "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": here} | more)
    return subprocess.Popen([os.path.join(bin_dir, argv[0])] + argv[1:], cwd=here, env=env, stdin=subprocess.DEVNULL,
                            stdout=out, stderr=err)


def end_it(child, command):
    """Ends what goes on; a suite ends by itself and removes its files."""
    if "regress" not in command:
        child.kill()
    child.wait()


def piped(command, here, bin_dir):
    """Without the lines that what takes long says every ten seconds."""
    child = start(command, here, bin_dir, subprocess.PIPE, subprocess.STDOUT)
    return re.sub(r"^(planning|running \w+), \d+ s:?[^\n]*\n", "", child.communicate()[0].decode(), flags=re.M)


def on_terminal(command, here, bin_dir, columns=80, enough=None, **more):
    """What a terminal gets; with `enough`, until that is there, at most 60 s.

    We keep the terminal open and mark the end of the command ourselves: a read can fail, as nobody writes any more, before
    it gave what was written last.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = start(command, here, bin_dir, theirs, theirs, **more)

    def mark_end():
        child.wait()
        os.write(theirs, END)

    marker = threading.Thread(target=mark_end)
    marker.start()
    text = b""
    until = time.monotonic() + 60
    while time.monotonic() < until and END not in text and (enough is None or enough not in text):
        if select.select([ours], [], [], 1)[0]:
            text += os.read(ours, 1 << 16)
    end_it(child, command)
    marker.join()
    os.close(ours)
    os.close(theirs)
    return text.removesuffix(END).decode().replace("\r\n", "\n")


def masked(command, text):
    if command.endswith("~"):
        text = re.sub(r" *[-+]?\d+(\.\d+)?(e[-+]\d+)? (s|ms|us|ns)(?![\w/])", " ? s", text)
        text = re.sub(r" *[-+]?\d+(\.\d+)? %", " ? %", text)
        text = re.sub(r"^(  tokens/s|  per device)( +\d+)+", r"\1 ?", text, flags=re.M)
        text = re.sub(r"\d+\.\d+(e[-+]\d+)?|\b0e\+00", "?", text)
        text = re.sub(r"(worst \?) at .*(\n +step \d+)?", r"\1", text)
        text = re.sub(r"( +MISMATCH .*\n( {4}.*\n)*)+", "  MISMATCH ...\n", text)
    return text


def judge_plain(command, text):
    for line in text.splitlines():
        if len(line) > 80 and len(line.split()) > 1:  # a path or a name cannot be cut
            fail(f"{command}: {len(line)} columns: {line}")
        if re.search(r"\b\d+ ps\b", line):
            fail(f"{command}: picoseconds: {line}")
        for number in re.finditer(r"(?<![\w.=/-])\d{7,}(?![\w.])", line):
            if not command.startswith("dtplan solve"):  # costs without a unit
                fail(f"{command}: a long number '{number.group()}': {line}")
        if line != line.rstrip():
            fail(f"{command}: spaces at the end: '{line}'")
    if "\x1b" in text:
        fail(f"{command}: an escape code in a pipe")


def look(command, here, bin_dir):
    plain = piped(command, here, bin_dir)
    judge_plain(command, plain)
    plain = masked(command, plain)
    coloured = on_terminal(command, here, bin_dir)
    drawing = command.startswith("dtplan viz") and not command.endswith("--help")
    if "\x1b[" not in coloured and not drawing:
        fail(f"{command}: no colour on a terminal")
    if masked(command, ESCAPE.sub("", re.sub("\r[^\n]*\r", "", coloured))) != plain:
        fail(f"{command}: a terminal gets another text:\n{coloured}\nthan a pipe:\n{plain}")
    for setting in [{"NO_COLOR": "1"}, {"TERM": "dumb"}] if command.endswith("help") else []:
        if "\x1b" in on_terminal(command, here, bin_dir, **setting):
            fail(f"{command}: colour with {setting}")
    return plain


def check_widths(here, bin_dir):
    for columns, more, most in [(120, {}, 120), (70, {}, 70), (20, {}, 60), (120, {"COLUMNS": "100"}, 100)]:
        text = ESCAPE.sub("", on_terminal("dtplan plan --help", here, bin_dir, columns, **more))
        widest = max(map(len, text.splitlines()))
        if not most - 12 < widest <= most:
            fail(f"{columns} columns, {more}: lines of {widest}")
    if "\x1b" not in on_terminal("dtplan help", here, bin_dir, NO_COLOR=""):
        fail("an empty NO_COLOR takes the colour away")


def check_text(here, bin_dir, update):
    commands = [f"dtplan {c} --help" for c in DTPLAN] + [f"dtrun {c} --help" for c in DTRUN] + COMMANDS
    # Plans first: others read them.
    commands.sort(key=lambda c: not c.startswith("dtplan plan"))
    ordered = [c for c in commands if c.startswith("dtplan plan")], [c for c in commands if not c.startswith("dtplan plan")]
    texts = {}
    for group in ordered:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for command, text in zip(group, pool.map(lambda c: look(c, here, bin_dir), group)):
                name = "_".join(command.split()[:2])
                texts[name] = texts.get(name, "") + f"$ {command.rstrip(' ~')}\n{text}\n"
    os.makedirs(GOLDEN, exist_ok=True)
    for name, text in texts.items():
        path = os.path.join(GOLDEN, name + ".txt")
        if update:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        with open(path, encoding="utf-8") as f:
            if f.read() != text:
                with open(os.path.join(here, name), "w", encoding="utf-8") as got:
                    got.write(text)
                subprocess.run(["diff", "-u", path, os.path.join(here, name)], check=False)
                fail(f"{path} differs (tests/tools/look.py BIN_DIR --update)")
    if sorted(os.listdir(GOLDEN)) != sorted(name + ".txt" for name in texts):
        fail(f"{GOLDEN} has other files than {sorted(texts)}")
    for tool, listed in [("dtplan", DTPLAN), ("dtrun", DTRUN)]:
        if sorted(re.findall(r"^  ([a-z-]+) ", texts[f"{tool}_help"], re.M)) != sorted(listed):
            fail(f"the commands of {tool} are not those of this test")
    check_widths(here, bin_dir)


def slow(what, here, bin_dir):
    command, says = what
    lasts = 14 if what == SLOW[0] else 3.5
    want = f"\r{says}, 2 s".encode()
    if not on_terminal(command, here, bin_dir, enough=want).startswith(want.decode()):
        fail(f"{command}: no line of progress")
    child = start(command, here, bin_dir, subprocess.DEVNULL, subprocess.PIPE)
    try:
        fail(f"{command}: it ends at once with {child.wait(lasts)}")
    except subprocess.TimeoutExpired:
        end_it(child, command)
    said = child.stderr.read().decode()
    if not re.fullmatch(r"planning, 1\d s[^\r\n]*\n" if what == SLOW[0] else "", said):
        fail(f"{command}: progress in a pipe: {said!r}")


def main():
    bin_dir = os.path.realpath(sys.argv[1])
    what = sys.argv[2] if len(sys.argv) > 2 else "text"
    with tempfile.TemporaryDirectory() as here:
        os.symlink(os.path.join(ROOT, "models"), os.path.join(here, "models"))
        for name, text in SUITES.items():
            with open(os.path.join(here, name), "w", encoding="utf-8") as f:
                f.write(text)
        if what == "progress":
            with concurrent.futures.ThreadPoolExecutor(len(SLOW)) as pool:
                list(pool.map(lambda s: slow(s, here, bin_dir), SLOW))
            ended = on_terminal(f"dtplan plan models/llama3_70b.json {H100} --mesh 'x:8;y:8' --mode tensor --untie "
                                "--limit-s 4 --json", here, bin_dir)
            if not re.fullmatch(r"(\rplanning, \d+ s[^\r]*)+\r *\r[^\r]+", ended):
                fail(f"the line of progress stays: {ended[:200]!r}")
        else:
            check_text(here, bin_dir, what == "--update")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
