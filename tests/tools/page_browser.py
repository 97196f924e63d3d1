#!/usr/bin/env python3
"""Reports of plans in headless Chromium: no error on the console, keys work, it prints; screenshots.

Chromium is driven over a pipe (--remote-debugging-pipe), so nothing but Python's library is needed.
Usage: page_browser.py [--chromium PROGRAM] [--shots FOLDER] [--docs FOLDER] PAGE.html..."""
import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

WIDTH = 1120


class Browser:
    """One Chromium; messages are JSON with a NUL behind each."""

    def __init__(self, program, profile):
        to_r, self.to = os.pipe()
        self.back, back_w = os.pipe()

        def descriptors():
            os.dup2(to_r, 3)
            os.dup2(back_w, 4)

        # descriptors 3 and 4 may be ours: move them out of the way first
        to_r, back_w = os.dup2(to_r, 63), os.dup2(back_w, 64)
        os.set_inheritable(3, True)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
             "--no-first-run", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_r)
        os.close(back_w)
        self.number, self.text, self.events = 0, b"", []

    def receive(self):
        while b"\0" not in self.text:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise SystemExit("chromium ended")
            self.text += more
        one, self.text = self.text.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.number:
                if "error" in got:
                    raise SystemExit(f"{method}: {got['error']['message']}")
                return got["result"]
            self.events.append(got)

    def wait(self, method):
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self.receive())


class Page:
    def __init__(self, browser, file):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.events = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=1400, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        browser.wait("Page.loadEventFired")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']['text']}")
        return result["result"].get("value")

    def key(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def scheme(self, scheme, media=""):
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shot(self, out, selector=None):
        clip = self.value("(() => { const b = %s; const r = b.getBoundingClientRect(); return {x: r.left + scrollX, "
                          "y: r.top + scrollY, width: r.width, height: r.height, scale: 1}; })()" %
                          (f"document.querySelector({json.dumps(selector)})" if selector else "document.documentElement"))
        kind = {"format": "webp", "quality": 75} if str(out).endswith(".webp") else {}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip, **kind)["data"]
        pathlib.Path(out).write_bytes(base64.b64decode(data))

    def faults(self):
        """What the console, the page's script and the network say that they should not."""
        found = []
        for e in self.browser.events:
            p = e.get("params", {})
            if e.get("method") == "Runtime.exceptionThrown":
                found.append("exception: " + p["exceptionDetails"].get("text", ""))
            elif e.get("method") == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                found.append(p["entry"]["text"])
            elif e.get("method") == "Runtime.consoleAPICalled":
                found.append(f"console.{p['type']}")
            elif e.get("method") == "Network.requestWillBeSent":
                if not p["request"]["url"].startswith(("file:", "data:", "about:")):
                    found.append("request: " + p["request"]["url"])
        return found


def check_clipped(page):
    """Texts of drawings that leave their drawing."""
    return page.value("""[...document.querySelectorAll('svg.drawing > text, svg.drawing > g > text')].filter(t => {
        const s = t.closest('svg.drawing').getBoundingClientRect(), b = t.getBoundingClientRect();
        return b.right > s.right + 1 || b.left < s.left - 1 || b.bottom > s.bottom + 1 || b.top < s.top - 1;
        }).map(t => t.textContent)""")


def check_keys(page):
    """Zooming and moving change what a window shows; 0 shows all again."""
    faults = []
    state = "(() => { const w = document.querySelector('g.window .slices'); return [...w.querySelectorAll('rect')].map(" \
            "r => Number(r.getAttribute('x'))); })()"
    page.value("document.querySelector('g.window').focus()")
    before = page.value(state)
    page.key("+", "+")
    zoomed = page.value(state)
    page.key("ArrowRight")
    moved = page.value(state)
    page.key("0", "0")
    after = page.value(state)
    if zoomed == before or moved == zoomed:
        faults.append("keys do not zoom or move the timeline")
    if max(abs(a - b) for a, b in zip(after, before)) > 0.1:
        faults.append("0 does not show all of the timeline")
    # Tab reaches the windows and the tensors
    page.value("document.body.focus(); document.activeElement.blur()")
    reached = set()
    for _ in range(80):
        page.key("Tab")
        reached.add(page.value("document.activeElement.tagName.toLowerCase()"))
    for tag in ("a", "g", "summary", "input"):
        if tag not in reached and page.value(f"document.querySelector('{'g.window' if tag == 'g' else tag}') !== null"):
            faults.append(f"Tab does not reach a {tag}")
    first = page.value("(() => { const s = document.querySelector('summary'); if (!s) return false; s.focus(); return true; })()")
    if first:
        page.key("Enter", "\r")
        if not page.value("document.querySelector('details').open"):
            faults.append("Enter does not open a tensor")
        page.key("Enter", "\r")
    return faults


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    options.add_argument("--shots", help="folder for pictures of the pages, light and dark, and of their parts")
    options.add_argument("--docs", help="folder for one picture of each page, for documents")
    options.add_argument("pages", nargs="+")
    given = options.parse_args()
    if not given.chromium:
        print("skipped: no chromium")
        return 77
    bad = 0
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(given.chromium, profile)
        for file in given.pages:
            page = Page(browser, file)
            name = pathlib.Path(file).stem
            faults = check_keys(page)
            faults += [f"a text leaves its drawing: {t!r}" for t in check_clipped(page)]
            if len(base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])) < 10000:
                faults.append("it does not print")
            page.value("document.activeElement.blur(); document.querySelector('nav').style.position = 'static'")
            page.scheme("light")
            if given.docs:
                page.shot(pathlib.Path(given.docs) / f"{name}.webp")
            if given.shots:
                folder = pathlib.Path(given.shots)
                folder.mkdir(parents=True, exist_ok=True)
                page.shot(folder / f"{name}.png")
                for part in page.value("[...document.querySelectorAll('main section')].map(s => s.id)"):
                    page.shot(folder / f"{name}-{part}.png", f"#{part}")
                page.scheme("dark")
                page.shot(folder / f"{name}-dark.png")
            faults += page.faults()
            for fault in faults:
                print(f"{file}: {fault}")
            print(f"{file}: {'%d faults' % len(faults) if faults else 'no error, keys and print work'}")
            bad += len(faults)
        browser.call("Browser.close")
        browser.process.wait(20)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
