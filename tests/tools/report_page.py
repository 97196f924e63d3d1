#!/usr/bin/env python3
"""dtplan report: pages are well-formed and load nothing, have every part, show the plan's figures, keep hostile names as
text, are small and the same bytes twice; drawings stand alone; bad input is one error and no file.

Usage: report_page.py BIN_DIR
"""
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.dom.minidom

BIN = os.path.abspath(sys.argv[1])
MLP = "models/mlp_digits.json"
GPT = "models/gpt_bytes.json"
PARTS = ["words", "timeline", "memory", "baselines", "pareto", "blocks", "explain"]
DRAWINGS = ["timeline", "memory", "baselines", "pareto", "blocks"]
VOID = {"meta", "link", "br", "img", "input", "hr"}
MIB = 1 << 20
# Each would be seen by a reader of HTML, of SVG, of an attribute or of the script if it were not a text.
HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "' onload='alert(1)", "</title><h1>&amp;",
           "</script><script>alert(2)", "]]><!--", "\u202eright to left", "line\nbreak\x1b[31m", "ø→Σ " + "long" * 30]
failures = []


def fail(text):
    failures.append(text)
    print("FAIL: " + text)


def tool(*argv, code=0, name="dtplan"):
    done = subprocess.run([f"{BIN}/{name}", *argv], capture_output=True, check=False)
    if done.returncode != code:
        fail(f"{' '.join(argv)}: exit {done.returncode}, wanted {code}: {done.stderr.decode()[:300]}")
    return done


class Reader(html.parser.HTMLParser):
    """Tags that are open, what has ids, where links go, texts; says what is not well-formed."""

    def __init__(self, name):
        super().__init__(convert_charrefs=True)
        self.name, self.open, self.ids, self.links, self.tags, self.text = name, [], [], [], [], []
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for key, value in attrs:
            self.attributes.append((tag, key, value))
            if key == "id":
                self.ids.append(value)
            elif key == "href":
                self.links.append(value)
            elif key.startswith("on") or key in ("src", "action", "formaction", "xlink:href"):
                fail(f"{self.name}: <{tag}> has {key}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            fail(f"{self.name}: </{tag}> inside {self.open[-3:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def read_page(name, path, most):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    reader = Reader(name)
    reader.feed(text)
    reader.close()
    if reader.open:
        fail(f"{name}: not closed: {reader.open}")
    if len(set(reader.ids)) != len(reader.ids):
        fail(f"{name}: an id stands twice")
    for link in reader.links:
        if link != "data:," and not (link.startswith("#") and link[1:] in reader.ids):
            fail(f"{name}: a link to {link}")
    if len(text.encode()) > most:
        fail(f"{name}: {len(text.encode())} bytes, at most {most}")
    others = set(re.findall(r"https?://[^\"' <]+", text)) - {"http://www.w3.org/2000/svg"}
    if others or "@import" in text or "url(" in text:
        fail(f"{name}: names something outside: {others}")
    if reader.tags.count("script") != 1 or reader.tags.count("style") != 1 or "img" in reader.tags:
        fail(f"{name}: scripts, styles or images that are not its own")
    if re.search(r"\b(nan|inf)\b", " ".join(str(v) for _, k, v in reader.attributes if k != "class")):
        fail(f"{name}: a coordinate that is no number")
    depth = begin = 0
    for tag in re.finditer(r"<(/?)svg\b", text):
        begin = tag.start() if depth == 0 else begin
        depth += -1 if tag.group(1) else 1
        if depth == 0:
            xml.dom.minidom.parseString(text[begin:tag.start()] + "</svg>")
    return text, reader


def has_parts(name, reader, parts):
    wanted = set(parts)
    have = {i for i in reader.ids if i in PARTS + ["diff", "measured"]}
    if have != wanted:
        fail(f"{name}: parts {sorted(have)}, wanted {sorted(wanted)}")
    for part in wanted:
        if f"{part}-title" not in reader.ids or f"#{part}" not in reader.links:
            fail(f"{name}: part {part} has no heading or no link")


def near(name, got, wanted, slack):
    if not abs(got - wanted) <= slack:
        fail(f"{name}: {got!r}, wanted {wanted!r}")


def drawing(model, plan, part, here, *more):
    out = f"{here}/{part}.svg"
    tool("report", model, plan, "--svg", part, "-o", out, *more)
    svg = xml.dom.minidom.parse(out).documentElement
    if svg.tagName != "svg" or not svg.getElementsByTagName("style") or not svg.getElementsByTagName("desc"):
        fail(f"{part}: no drawing of its own")
    return svg


def rects(node, classes):
    return [r for r in node.getElementsByTagName("rect") if r.getAttribute("class") in classes]


def check_figures(here):
    """Lengths in drawings are times and bytes of the plan."""
    with open(f"{here}/mlp.plan", encoding="utf-8") as f:
        plan = json.load(f)
    p = plan["predicted"]
    svg = drawing(MLP, f"{here}/mlp.plan", "timeline", here)
    windows = [g for g in svg.getElementsByTagName("g") if g.getAttribute("class") == "window"]
    if len(windows) != 1:
        return fail(f"timeline: {len(windows)} windows of a step of a few instructions")
    per_pixel = p["step_time_s"] / 870.0
    compute = rects(windows[0], {"forward", "backward", "update", "copy"})
    comm = rects(windows[0], {"c0", "c1", "c2", "c3", "c4"})
    waits = rects(windows[0], {"wait"})
    for name, group, wanted in (("compute", compute, p["compute_s"]), ("communication", comm, p["comm_s"]),
                                ("waiting", waits, p["exposed_comm_s"])):
        near(f"timeline: {name}", sum(float(r.getAttribute("width")) for r in group) * per_pixel, wanted,
             0.01 * p["step_time_s"])
    near("timeline: seconds", float(windows[0].getAttribute("data-seconds")), p["step_time_s"], 1e-9)
    svg = drawing(MLP, f"{here}/mlp.plan", "baselines", here)
    legal = {k: b for k, b in plan["baselines"].items() if b["legal"]}
    bars = [r for r in rects(svg, {"own", "forward", "wait"}) if float(r.getAttribute("x")) < 600
            and r.getAttribute("height") == "16.00"]
    lengths = {}
    for r in bars:
        y = r.getAttribute("y")
        lengths[y] = lengths.get(y, 0.0) + float(r.getAttribute("width"))
    steps = sorted([p["step_time_s"]] + [b["step_time_s"] for b in legal.values()])
    if len(lengths) != len(steps):
        return fail(f"baselines: {len(lengths)} bars of {len(steps)} plans")
    most = min(max(steps), 4 * p["step_time_s"])
    for got, wanted in zip(sorted(lengths.values()), steps):
        near("baselines: a bar", got, 330.0 * min(wanted / most, 1.0), 0.5)
    svg = drawing(MLP, f"{here}/mlp.plan", "memory", here)
    level = [l for l in svg.getElementsByTagName("line") if l.getAttribute("class") == "peak"]
    heights = [float(v) for a in svg.getElementsByTagName("path") for v in re.findall(r"V([0-9.]+)", a.getAttribute("d"))]
    # What is needed is at most the arena, and nearly all of it.
    if not heights or min(heights) < float(level[0].getAttribute("y1")) - 0.1 or \
            min(heights) > float(level[0].getAttribute("y1")) + 12.0:
        fail(f"memory: the peak lies at {level[0].getAttribute('y1')}, the areas end at {min(heights, default=None)}")
    # A limit just above the peak: one name above its line, one below.
    tool("plan", MLP, "--mesh", "x:2;y:2", "--machine", "h100_64", "--mode", "tensor", "--memory", str(p["peak_bytes"] + 64), "-o",
         f"{here}/tight.plan")
    svg = drawing(MLP, f"{here}/tight.plan", "memory", here)
    at = {t.firstChild.data.split()[0]: float(t.getAttribute("y")) for t in svg.getElementsByTagName("text")
          if t.firstChild.data.startswith(("peak ", "limit "))}
    if len(at) != 2 or abs(at["peak"] - at["limit"]) < 12.0:
        fail(f"memory: names of peak and limit at {at}")
    svg = drawing(MLP, f"{here}/mlp.plan", "blocks", here)
    with open(MLP, encoding="utf-8") as f:
        nodes = json.load(f)["nodes"]
    if len(rects(svg, {"node"})) < len(nodes):
        fail("blocks: nodes are missing")
    return None


def check_hostile(here):
    """Names of tensors and dims are letters; those of models, machines, baselines, files and runs are any text."""
    with open(MLP, encoding="utf-8") as f:
        model = dict(json.load(f), name="<h1>\"" + "".join(HOSTILE[:3]))
    hostile, plan, page = f"{here}/<b>'&\".json", f"{here}/hostile.plan", f"{here}/hostile.html"
    rules = {"format": "dtp.rules/1", "rules": {f"{i} {name}": "batch:0" for i, name in enumerate(HOSTILE)}}
    with open("models/machines/h100_64.json", encoding="utf-8") as f:
        machine = dict(json.load(f), name="<i>\"'&machine")
    run = {"format": "dtp.report/1", "model": model["name"], "mesh": [["x", 2]], "backend": "<s>\"'&cpu",
           "comm": "</table>", "steps": 3, "measured": {"step_time_s": 1e-3, "peak_bytes": None}}
    for file, value in ((hostile, model), (f"{here}/rules.json", rules), (f"{here}/machine.json", machine),
                        (f"{here}/run.json", run)):
        with open(file, "w", encoding="utf-8") as f:
            json.dump(value, f)
    on = ["--mesh", "x:2", "--machine", f"{here}/machine.json", "--rules-file", f"{here}/rules.json"]
    other = f"{here}/<u>&'\".plan"
    tool("plan", hostile, *on, "--mode", "tensor", "-o", plan)
    tool("plan", hostile, *on, "--rules", "", "-o", other)
    tool("report", hostile, plan, "--machine", f"{here}/machine.json", "--against", other, "--run", f"{here}/run.json",
         "-o", page)
    text, reader = read_page("hostile", page, MIB)
    has_parts("hostile", reader, PARTS + ["diff", "measured"])
    shown = "".join(reader.text)
    for name in ["0 <script>alert(1)</script>", "1 \"><img src=x onerror=", "2 ' onload='alert(1)", "3 </title><h1>&amp;",
                 "5 ]]><!--", "8 ø→Σ long", "<i>\"'&machine", "<u>&'\".plan", "<s>\"'&cpu", "</table>"]:
        if name not in shown:
            fail(f"hostile: the name {name!r} is not shown")
    if reader.tags.count("h1") != 1 or {"i", "u", "s", "img"} & set(reader.tags) or reader.tags.count("b") < 4:
        fail("hostile: a name became a tag")
    if "\x1b" in text or "\u202e" in text:
        fail("hostile: control characters are in the page")
    for part in DRAWINGS:
        drawing(hostile, plan, part, here, "--machine", f"{here}/machine.json")


def check_stages(here):
    """The page of a plan with stages: a section of the drawing for every action of the table, at its time, and the peak of the
    stage that binds; a run of it stands beside it; what is of one program is refused or left out."""
    on = ["--machine", "h100_64", "--target", "cpu", "--dim", "batch=16", "--dim", "length=16", "--microbatches", "4"]
    tool("plan", GPT, *on, "--devices", "4", "--stages", "2", "-o", f"{here}/two.plan", "--report", f"{here}/two.html")
    tool("plan", GPT, *on, "--mesh", "x:1", "--stages", "2x2", "--style", "**: data", "-o", f"{here}/chunks.plan")
    for name, chunks in (("two", 1), ("chunks", 2)):
        plan, page = f"{here}/{name}.plan", f"{here}/{name}.report"
        tool("run", GPT, "--plan", plan, "--comm", "sim", "--threads", "1", "--steps", "1", "--quiet", "--json", "-o", f"{here}/{name}.run",
             name="dtrun")
        tool("report", GPT, plan, "--run", f"{here}/{name}.run", "-o", page)
        text, reader = read_page(name, page, MIB)
        has_parts(name, reader, [part for part in PARTS if part != "explain"] + ["measured"])
        with open(plan, encoding="utf-8") as f:
            p = json.load(f)["predicted"]
        if "stages" not in reader.ids or "does not say what other layouts" not in text or f"of stage {peak_stage(plan)}" not in text:
            fail(f"{name}: no drawing of the stages, or no word of what is left out")
        trace = json.loads(tool("show", GPT, "--plan", plan, "--machine", "h100_64", "--stage", "schedule").stdout)
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        svg = drawing(GPT, plan, "stages", here)
        per_pixel = p["step_time_s"] / 660.0
        drawn = [r for r in rects(svg, {"forward", "backward", "update"}) if r.getAttribute("height") == "20.00"]
        rows = sorted({float(r.getAttribute("y")) for r in drawn})
        for process, y in zip(trace["otherData"]["processes"], rows):
            got = [float(r.getAttribute("x")) for r in drawn if float(r.getAttribute("y")) == y]
            wanted = [118 + 1e-6 * e["ts"] / per_pixel for e in events if e["cat"] == "section" and e["pid"] == process["pid"]]
            if len(got) != len(wanted) or any(abs(a - b) > 0.02 for a, b in zip(got, wanted)):
                fail(f"{name}: sections at {got}, wanted {wanted}")
        sends = [r for r in rects(svg, {"c4"}) if r.getAttribute("height") == "4.00"]
        if len(rows) != 2 or len(drawn) != 2 * chunks * 9 or len(sends) != sum(e["cat"] == "send" for e in events):
            fail(f"{name}: {len(drawn)} sections and {len(sends)} sends on {len(rows)} stages")
        svg = drawing(GPT, plan, "memory", here)
        level = [float(l.getAttribute("y1")) for l in svg.getElementsByTagName("line") if l.getAttribute("class") == "peak"]
        heights = [float(v) for a in svg.getElementsByTagName("path") for v in re.findall(r"V([0-9.]+)", a.getAttribute("d"))]
        if not level or not level[0] - 0.1 <= min(heights) <= level[0] + 30.0:
            fail(f"{name}: the peak lies at {level}, the areas end at {min(heights, default=None)}")
        for part in DRAWINGS:
            drawing(GPT, plan, part, here)
        for argv, words in ((["--points", "2"], b"--points is of plans without stages"), (["--against", plan], b"--against is of plans")):
            done = tool("report", GPT, plan, *argv, "-o", f"{here}/none.html", code=2)
            if words not in done.stderr or os.path.exists(f"{here}/none.html"):
                fail(f"{name}: {argv}: {done.stderr.decode()}")
    with open(f"{here}/two.html", encoding="utf-8") as f, open(f"{here}/two.report", encoding="utf-8") as g:
        if f.read().split("<nav", 1)[0] != g.read().split("<nav", 1)[0]:
            fail("two: another page when it is planned")
    tool("report", MLP, f"{here}/mlp.plan", "--svg", "stages", "-o", f"{here}/none.svg", code=2)
    # More sections than can be drawn one by one are shares of columns, of the same work.
    tool("plan", GPT, "--machine", "h100_64", "--dim", "batch=512", "--dim", "length=8", "--microbatches", "256", "--mesh", "x:2", "--rules",
         "batch:x", "--stages", "2", "-o", f"{here}/many.plan")
    svg = drawing(GPT, f"{here}/many.plan", "stages", here)
    if rects(svg, {"forward"})[1:] or len(svg.getElementsByTagName("path")) < 2 * 2:
        fail("many: sections are not shares")


def peak_stage(plan):
    shown = tool("show", GPT, "--plan", plan, "--machine", "h100_64", "--stage", "pipeline").stdout.decode()
    table = re.findall(r"^(\d)(?:\.\d)? +\d+ +([0-9.]+) MiB", shown, flags=re.M)
    return max(table, key=lambda row: float(row[1]))[0]


def check_refusals(here):
    """One error with its place, exit 2, no file."""
    plan, out = f"{here}/mlp.plan", f"{here}/none.html"
    runs = {"format": {"format": "dtp.plan/1"}, "model": {"format": "dtp.report/1", "model": "other"},
            "mesh": {"format": "dtp.report/1", "model": "mlp_digits", "mesh": [["x", 3], ["y", 2]]},
            "pair": {"format": "dtp.report/1", "model": "mlp_digits", "mesh": [3, ["y", 2]]},
            "measured": {"format": "dtp.report/1", "model": "mlp_digits", "mesh": [["x", 2], ["y", 2]],
                         "backend": "cpu", "comm": "sim", "steps": 1, "measured": {"step_time_s": "fast"}}}
    for name, value in runs.items():
        with open(f"{here}/{name}.json", "w", encoding="utf-8") as f:
            json.dump(value, f)
        done = tool("report", MLP, plan, "--run", f"{here}/{name}.json", "-o", out, code=2)
        if f"{name}.json:1:" not in done.stderr.decode() or done.stderr.count(b"\n") > 3:
            fail(f"{name}: the error does not say its place: {done.stderr.decode()}")
    for argv in (["--run", f"{here}/nothing.json"], ["--svg", "pie"], ["--against", f"{here}/format.json"],
                 ["--machine", "nowhere.json"]):
        done = tool("report", MLP, plan, *argv, "-o", out, code=2)
        if os.path.exists(out) or done.stdout:
            fail(f"{argv}: something was written")
    with open(plan, encoding="utf-8") as f:
        other = dict(json.load(f), machine="of somebody else")
    with open(f"{here}/other.plan", "w", encoding="utf-8") as f:
        json.dump(other, f)
    done = tool("report", MLP, f"{here}/other.plan", "-o", out, code=2)
    if b"--machine FILE is missing: the plan is for machine 'of somebody else'" not in done.stderr:
        fail(f"a machine without a name: {done.stderr.decode()}")
    if os.path.exists(out):
        fail("a refused report was written")


def main():
    with tempfile.TemporaryDirectory() as here:
        mlp, gpt, rules = f"{here}/mlp.plan", f"{here}/gpt.plan", f"{here}/rules.plan"
        tool("plan", MLP, "--mesh", "x:2;y:2", "--machine", "h100_64", "--mode", "tensor", "--memory", "200K", "-o", mlp)
        small = ["--dim", "layers=3", "--dim", "length=16"]
        on = ["--mesh", "x:2", "--machine", "cpu_2"]
        tool("plan", GPT, *on, *small, "--mode", "tensor", "--microbatches", "4", "-o", gpt, "--report", f"{here}/at_once.html")
        tool("plan", GPT, *on, *small, "-o", rules)
        tool("run", GPT, "--plan", gpt, "--comm", "sim", "--steps", "1", "--quiet", "--json", "-o", f"{here}/run.json",
             name="dtrun")
        for k in (1, 2):
            tool("report", GPT, gpt, "--against", rules, "--run", f"{here}/run.json", "--points", "3", "-o",
                 f"{here}/gpt{k}.html")
        tool("report", MLP, mlp, "-o", f"{here}/mlp.html")
        text, reader = read_page("gpt_bytes", f"{here}/gpt1.html", MIB)
        has_parts("gpt_bytes", reader, PARTS + ["diff", "measured"])
        with open(f"{here}/gpt2.html", encoding="utf-8") as f:
            if f.read() != text:
                fail("gpt_bytes: other bytes the second time")
        if text.count("<details class=\"tensor\">") < 10 or "Pareto front: the fastest" not in text:
            fail("gpt_bytes: alternatives or the Pareto front are missing")
        _, reader = read_page("at once", f"{here}/at_once.html", MIB)
        has_parts("at once", reader, PARTS)
        _, reader = read_page("mlp", f"{here}/mlp.html", MIB // 4)
        has_parts("mlp", reader, PARTS)
        for part in DRAWINGS:
            drawing(GPT, gpt, part, here)
        tool("plan", "models/llama3_70b.json", "--mesh", "x:8;y:8", "--machine", "h100_64", "--mode", "rules", "--remat", "layer", "-o",
             f"{here}/llama.plan")
        tool("report", "models/llama3_70b.json", f"{here}/llama.plan", "-o", f"{here}/llama.html")
        read_page("llama3_70b", f"{here}/llama.html", MIB)
        check_figures(here)
        check_hostile(here)
        check_stages(here)
        check_refusals(here)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
