"""What files call things is printed as one line without control characters, whatever the files say: names of models,
machines, levels, rule sets and runtimes, notes. Reports and messages of the commands are looked through. Usage:
raw_names.py BIN_DIR"""
import json
import subprocess
import sys
import tempfile
import unicodedata

BIN = sys.argv[1]
RAW = "n\x1b[31m\u202e\u2028|<b>`x`\nsecond\x07\x9b"  # colour, direction, lines, markup, bell, CSI


def taint(value):
    """Every text that is a name or a note."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if isinstance(value[key], (dict, list)):
            taint(value[key])
        elif key in ("name", "about", "source", "note", "host", "of", "from") and isinstance(value[key], str):
            value[key] += RAW


def save(name, value):
    with open(name, "w", encoding="utf-8") as out:
        json.dump(value, out)
    return name


def main():
    count = failed = shown = 0
    folder = tempfile.TemporaryDirectory()
    at = folder.name + "/"
    model = json.load(open("models/mlp_digits.json", encoding="utf-8"))
    machine = json.load(open("models/machines/cpu_2.json", encoding="utf-8"))
    rules = json.load(open("models/mlp_digits.rules.json", encoding="utf-8"))
    model["name"] = model["about"] = RAW
    taint(machine)
    rules["rules"] = {key + RAW: text for key, text in rules["rules"].items()}
    m, h = save(at + "m.json", model), save(at + "h.json", machine)
    save(at + "m.rules.json", rules)
    p, q, mesh, priced = at + "p.plan", at + "q.plan", ["--mesh", "x:2"], ["--machine", h]
    commands = [
        ["dtplan", "plan", m, *mesh, *priced, "-o", p],
        ["dtplan", "plan", m, *mesh, *priced, "--mode", "tensor", "--comm-report"],
        ["dtplan", "plan", m, *mesh, *priced, "--rules", "hidden:x", "--verbose", "-o", q],
        ["dtplan", "plan", m, *mesh, *priced, "--memory", "1K"],
        ["dtplan", "explain", m, p, "w1", *priced],
        ["dtplan", "report", m, p, *priced, "--against", q],
        ["dtplan", "diff", m, p, q, *priced],
        ["dtplan", "sensitivity", m, p, *priced],
        ["dtplan", "pareto", m, *mesh, *priced],
        ["dtrun", "run", m, "--plan", p, "--comm", "sim", "--steps", "2", "--machine", h],
        ["dtrun", "verify", m, "--plan", p, "--comm", "sim"],
    ]
    for stage in ("graph", "strategies", "plan", "program", "memory"):
        commands.append(["dtplan", "show", m, "--stage", stage, "--plan", p])
    commands.append(["dtplan", "show", m, "--stage", "problem", *mesh, *priced])
    for argv in commands:
        done = subprocess.run([BIN + "/" + argv[0], *argv[1:]], capture_output=True, check=False)
        text = (done.stdout + done.stderr).decode("utf-8")
        lines = text.split("\n")
        raw = [line for line in lines if any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in line)]
        raw += [line for line in lines if line.startswith("second")]
        count += 1
        shown += "[31m" in text
        if raw or done.returncode not in (0, 3):
            failed += 1
            print("FAIL:", " ".join(argv[:2]), done.returncode, ascii((raw + lines)[:3]))
    if shown < 8:
        failed += 1
        print(f"FAIL: names are shown by {shown} commands only")
    print(f"{count} commands, {failed} failed")
    return failed > 0


sys.exit(main())
