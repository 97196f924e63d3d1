// Windows of the timeline: + and - zoom, arrows move, 0 shows all. Names filter the list of tensors.
"use strict";

const CHARACTER = 6.6; // as in svg.c
const WIDTH = 1000;

const timeText = (s) => {
  const units = [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]];
  const [name, unit] = units.find(([, u]) => Math.abs(s) >= u) || units[3];
  return s === 0 ? "0 s" : Number((s / unit).toPrecision(4)) + " " + name;
};

const element = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) {
    made.setAttribute(key, attributes[key]);
  }
  made.textContent = text || "";
  return made;
};

class TimeWindow {
  constructor(group) {
    this.group = group;
    this.left = Number(group.dataset.left);
    this.plot = Number(group.dataset.plot);
    this.seconds = Number(group.dataset.seconds);
    this.slices = group.querySelector(".slices");
    this.times = group.querySelector(".times");
    this.axisY = Number(this.times.querySelector("line").getAttribute("y1"));
    this.rects = [...this.slices.querySelectorAll("rect")].map((rect) => ({
      rect,
      from: (Number(rect.getAttribute("x")) - this.left) / this.plot,
      size: Number(rect.getAttribute("width")) / this.plot,
      y: Number(rect.getAttribute("y")),
      label: rect.parentNode.dataset.label,
    }));
    this.from = 0;
    this.size = 1;
    group.addEventListener("keydown", (event) => this.key(event));
    group.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  key(event) {
    const moves = {
      "+": () => this.zoom(0.5, 0.5), "=": () => this.zoom(0.5, 0.5), "-": () => this.zoom(2, 0.5),
      ArrowLeft: () => this.show(this.from - this.size / 4, this.size),
      ArrowRight: () => this.show(this.from + this.size / 4, this.size),
      Home: () => this.show(0, this.size), End: () => this.show(1, this.size),
      "0": () => this.show(0, 1), Escape: () => this.show(0, 1),
    };
    if (moves[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      moves[event.key]();
    }
  }

  wheel(event) {
    if (event.ctrlKey) {
      event.preventDefault();
      const box = this.slices.getBoundingClientRect();
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, (event.clientX - box.left) / box.width);
    }
  }

  zoom(factor, at) {
    const size = Math.min(1, Math.max(this.size * factor, 1e-4));
    this.show(this.from + (this.size - size) * at, size);
  }

  show(from, size) {
    this.size = size;
    this.from = Math.min(Math.max(from, 0), 1 - size);
    this.slices.querySelectorAll("text").forEach((text) => text.remove());
    for (const { rect, from: begin, size: length, y, label } of this.rects) {
      const x = this.left + (this.plot * (begin - this.from)) / this.size;
      const width = (this.plot * length) / this.size;
      const seen = Math.max(x, this.left);
      const room = Math.floor((Math.min(x + width, this.left + this.plot) - seen - 6) / CHARACTER);
      rect.setAttribute("x", x);
      rect.setAttribute("width", width);
      if (room >= 4) {
        const text = label.length > room ? label.slice(0, room - 1) + "…" : label;
        this.slices.append(element("text", { x: seen + 3, y: y + 15, class: "on" }, text));
      }
    }
    this.axis();
  }

  axis() {
    const begin = this.seconds * this.from;
    const span = this.seconds * this.size;
    const power = 10 ** Math.floor(Math.log10(span / 8));
    const step = power * [1, 2, 5, 10].find((k) => span / 8 / power <= k);
    this.times.replaceChildren(element("line", {
      x1: this.left, x2: this.left + this.plot, y1: this.axisY, y2: this.axisY, class: "axis" }));
    for (let k = Math.ceil(begin / step - 1e-9); k * step <= begin + span * (1 + 1e-9); k++) {
      const x = this.left + (this.plot * (k * step - begin)) / span;
      this.times.append(
        element("line", { x1: x, x2: x, y1: this.axisY, y2: this.axisY + 4, class: "axis" }),
        element("text", { x: x > WIDTH - 30 ? WIDTH : x, y: this.axisY + 16, class: "small",
          "text-anchor": x > WIDTH - 30 ? "end" : "middle" }, timeText(k * step)));
    }
  }
}

document.querySelectorAll("g.window").forEach((group) => new TimeWindow(group));

document.querySelectorAll("g.segment").forEach((segment) => {
  segment.addEventListener("click", () => {
    const target = document.getElementById("window-" + segment.dataset.window) || document.querySelector("g.window");
    if (target) {
      target.focus();
      target.scrollIntoView({ block: "nearest" });
    }
  });
});

const filter = document.getElementById("filter");
if (filter) {
  filter.addEventListener("input", () => {
    const part = filter.value.trim().toLowerCase();
    document.querySelectorAll("details.tensor").forEach((tensor) => {
      tensor.hidden = !tensor.querySelector("b").textContent.toLowerCase().includes(part);
    });
  });
}
