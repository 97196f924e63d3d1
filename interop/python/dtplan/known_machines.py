"""Machines that have a name, and the one that fits the GPUs at hand."""
from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from typing import Union

from .errors import InputError
from .program import run

Setting = Union[str, int, float]


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine that `dtplan machines` lists, or a machine file, with changes.

    `name`: its name or path; `devices`: how many devices plans are for; `what`: a description; `settings`: changes.

    >>> dtplan.machine("h100_64").devices
    64
    """

    name: str
    devices: int
    what: str = ""
    settings: tuple[str, ...] = ()

    def set(self, **values: Setting) -> Machine:
        """The same machine with other numbers: `memory="141GiB"`, `ib="0.5x"` (the bandwidth of a level of the network); other
        numbers by their whole names, `**{"ib.latency": "5us"}`.

        >>> dtplan.machine("h100_64").set(ib="0.5x").settings
        ('ib.bandwidth=0.5x',)
        """
        levels = {level["name"] for level in json.loads(run(["machines", self.name]))["levels"]}
        made = tuple(f"{key}.bandwidth={value}" if key in levels else f"{key}={value}" for key, value in values.items())
        changed = dataclasses.replace(self, settings=self.settings + made)
        run(["machines", self.name, *changed.words()])
        return changed

    def words(self) -> list[str]:
        """Its options of the program beside --machine.

        >>> dtplan.machine("h100_64").set(memory="141GiB").words()
        ['--set', 'memory=141GiB']
        """
        return [word for setting in self.settings for word in ("--set", setting)]


def machines() -> list[Machine]:
    """The machines that have a name.

    >>> [m.name for m in dtplan.machines() if m.name.startswith("h100")]
    ['h100_128', 'h100_512', 'h100_512_efa', 'h100_64']
    """
    text = re.sub(r"\n +", " ", run(["machines"]))
    rows = re.findall(r"^(\S+) +(\d+)  +(.*)$", text, re.MULTILINE)
    return [Machine(name, int(devices), what) for name, devices, what in rows]


def machine(name: str | None = None) -> Machine:
    """The machine of this name or in this file. Without a name that of the GPUs at hand: their names, number and memory come from
    PyTorch when it is loaded, else from nvidia-smi, and the named machine with such GPUs stands for them.

    >>> dtplan.machine("a100_8").devices
    8
    """
    known = {m.name: m for m in machines()}
    if name is not None:
        if name in known:
            return known[name]
        found = json.loads(run(["machines", name]))
        devices = 1
        for level in found["levels"]:
            devices *= level["size"]
        return Machine(name, devices)
    found_here = gpus()
    if not found_here:
        raise InputError("there is no GPU here (neither torch.cuda nor nvidia-smi lists one): name a machine, one of "
                         + ", ".join(known))
    return fit(found_here)


def fit(found: list[tuple[str, int]]) -> Machine:
    """The machine of these GPUs, (name, bytes of memory) of each: the smallest named one of the kind that has as many, for so many
    devices, with the memory that they have.

    >>> dtplan.fit([("NVIDIA H200", 141 << 30)] * 8).devices
    8
    """
    known = machines()
    if len({name for name, _ in found}) > 1:
        raise InputError("GPUs of several kinds are no machine that has a name: " + ", ".join(sorted({n for n, _ in found})))
    words = re.split(r"[^a-z0-9]+", found[0][0].lower())
    kinds = sorted({m.name.split("_")[0] for m in known if m.name.split("_")[0] in words}, key=len)
    if not kinds:
        raise InputError(f"no machine that has a name has a {found[0][0]}: give a machine file (docs/formats/machine.md)")
    of_kind = sorted((m for m in known if m.name.split("_")[0] == kinds[-1]), key=lambda m: m.devices)
    best = next((m for m in of_kind if m.devices >= len(found)), of_kind[-1])
    memory = json.loads(run(["machines", best.name]))["device"]["memory_bytes"]
    settings = () if abs(found[0][1] - memory) < 0.06 * memory else (f"memory={found[0][1] >> 20}MiB",)
    return dataclasses.replace(best, devices=len(found), settings=settings)


def gpus() -> list[tuple[str, int]]:
    """(name, bytes of memory) of the GPUs at hand."""
    torch = sys.modules.get("torch")
    if torch is not None:
        found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        return [(gpu.name, gpu.total_memory) for gpu in found]
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.rpartition(",") for line in done.stdout.splitlines() if "," in line]
    return [(name.strip(), int(memory) << 20) for name, _, memory in rows]
