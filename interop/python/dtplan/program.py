"""Runs the programs dtplan and dtrun: words, exit codes, progress, interruption."""
from __future__ import annotations

import contextlib
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import tty
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from .errors import DtplanError, DtplanWarning, InfeasibleError, InputError

log = logging.getLogger("dtplan")
_HERE = os.path.dirname(os.path.abspath(__file__))
_PLACES = (os.path.join(_HERE, "bin"), os.path.join(_HERE, "..", "..", "..", "bin"))  # of a wheel, of `cmake --install`


def find(name: str) -> str:
    """The path of a program: in the folder that DTPLAN_BIN names, else in the package, else where the package is installed."""
    given = os.environ.get("DTPLAN_BIN")
    for place in (given,) if given else _PLACES:
        path = os.path.normpath(os.path.join(place, name))
        if os.access(path, os.X_OK):
            return path
    raise DtplanError(f"there is no program {name} in {given or ' or '.join(map(os.path.normpath, _PLACES))}; "
                      "DTPLAN_BIN names the folder that has it")


def main_dtplan() -> NoReturn:
    """The command dtplan of a wheel: becomes the program."""
    path = find("dtplan")
    os.execv(path, [path, *sys.argv[1:]])


def main_dtrun() -> NoReturn:
    """The command dtrun of a wheel: becomes the program."""
    path = find("dtrun")
    os.execv(path, [path, *sys.argv[1:]])


def run(words: Sequence[str], progress: bool = False, name: str = "dtplan") -> str:
    """What the program prints. Its warnings become warnings; an exit code other than 0 an exception.

    Ctrl-C asks the program to end; `dtplan plan` then returns its best plan so far. A second Ctrl-C kills it.
    """
    began, path = time.monotonic(), find(name)
    log.debug("%s %s", name, " ".join(words))
    ours, theirs = _told_through(progress)
    with subprocess.Popen([path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
                          start_new_session=True, env={**os.environ, "NO_COLOR": "1", "TERM": "dumb"}) as child:
        os.close(theirs)
        told = _Told(progress)
        try:
            out = _listen(child, ours, told)
        except BaseException:
            child.kill()
            raise
        finally:
            os.close(ours)
            told.close()
    log.info("%s %s: exit %d after %.1f s", name, words[0], child.returncode, time.monotonic() - began)
    failed = child.returncode != 0
    *notes, error = re.split(f"^{name}: ", told.text.strip(), maxsplit=1, flags=re.MULTILINE) if failed else (told.text, "")
    if told.interrupted:
        if failed:  # there was no plan yet
            raise KeyboardInterrupt(error)
        warnings.warn("planning was interrupted: this is the best plan so far", DtplanWarning, stacklevel=4)
    for line in re.sub(r"\n    +", " ", "".join(notes).strip()).splitlines():
        warnings.warn(line, DtplanWarning, stacklevel=4)
    if failed:
        kind = {2: InputError, 3: InfeasibleError}.get(child.returncode, DtplanError)
        raise kind(error or f"{name} {words[0]}: exit code {child.returncode}")
    return out


def _told_through(progress: bool) -> tuple[int, int]:
    """The program tells its progress to a terminal alone. Containers may lack them."""
    if progress:
        with contextlib.suppress(OSError):
            ours, theirs = pty.openpty()
            tty.setraw(theirs)
            return ours, theirs
    return os.pipe()


def _listen(child: subprocess.Popen[bytes], errors: int, told: _Told) -> str:
    assert child.stdout is not None
    out, open_files = b"", [child.stdout.fileno(), errors]
    while open_files:
        try:
            for file in select.select(open_files, [], [], 0.2)[0]:
                try:
                    data = os.read(file, 1 << 16)
                except OSError:  # a terminal whose other side is closed
                    data = b""
                if not data:
                    open_files.remove(file)
                elif file == errors:
                    told.take(data)
                else:
                    out += data
        except KeyboardInterrupt:
            if told.interrupted:
                raise
            told.interrupted = True
            child.send_signal(signal.SIGINT)
    return out.decode()


class _Told:
    """What a program says on its terminal: lines, and among them progress, which it writes over itself."""

    def __init__(self, progress: bool) -> None:
        self.text, self.interrupted = "", False
        self._rest, self._shown, self._last = "", progress, 0.0
        self._bar: Any = None

    def take(self, data: bytes) -> None:
        *parts, self._rest = re.split(r"(?<=\n)|\r", self._rest + data.decode(errors="replace"))
        for part in parts:
            self._part(part)
        if re.match(r"(planning|measuring), \d+ s", self._rest):
            self._part(self._rest)
            self._rest = ""

    def _part(self, part: str) -> None:
        if re.match(r"(planning|measuring), \d+ s", part):
            self._show(part.strip())
        elif part.strip() or self.text:
            self.text += part

    def _show(self, line: str) -> None:
        now = time.monotonic()
        if not self._shown or now - self._last < (0.5 if self._bar else 5.0) and self._last:
            return
        self._last = now
        log.debug("%s", line)
        if self._bar is None:
            try:
                from tqdm.auto import tqdm
                self._bar = tqdm(bar_format="{desc}", leave=False)
            except ImportError:
                self._bar = False
        if self._bar:
            self._bar.set_description_str(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._part(self._rest)
        if self._bar:
            self._bar.close()


def progress_wanted() -> bool:
    """Whether somebody looks: a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
