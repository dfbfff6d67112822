// Live plot on the nodes that draw: tokens of every pass as bars, drift per token as a line.
import { app } from "../../../scripts/app.js";
import { api } from "../../../scripts/api.js";

const EVENT = "csd.pass";
const NODES = new Set(["CSDSampler", "CSDQuickGenerate"]);
const SETTING = "CSD.Live.plot";
const HEIGHT = 96, MARGIN = 6, SLOT = HEIGHT + 2 * MARGIN;
const BAR = "#a64a9c", LINE = "#f67d46";

const plots = new Map(); // node -> Plot

class Plot {
  constructor(node) {
    this.canvas = document.createElement("canvas");
    this.canvas.className = "csd-live-plot";
    // without a largest height "Nodes 2.0" stretches it over all the room a node has left
    this.canvas.style.cssText = `width: 100%; height: ${HEIGHT}px; max-height: ${HEIGHT}px; display: block;`;
    this.clear();
    this.widget = node.addDOMWidget("live_plot", "csd_live_plot", this.canvas, {
      serialize: false,
      margin: MARGIN, // the canvas renderer takes it off the slot on every side
      getMinHeight: () => SLOT,
      getMaxHeight: () => SLOT,
    });
    this.widget.serialize = false; // the plot is no value: saved widget values must not shift
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  clear() {
    this.bars = [];
    this.drift = [];
    this.last = null;
  }

  push(event) {
    if (event.first) this.clear();
    this.bars.push(...event.accepted);
    this.drift.push([this.bars.length, event.drift]);
    this.last = event;
    this.canvas.dataset.passes = this.bars.length;
    this.draw();
  }

  show(visible) {
    this.widget.hidden = !visible;
    this.widget.options.hidden = !visible;
    this.canvas.style.visibility = visible ? "visible" : "hidden";
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = HEIGHT;
    if (!width) return;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const ink = getComputedStyle(document.body).getPropertyValue("--input-text").trim() || "#bbb";
    pen.font = "11px sans-serif";
    pen.fillStyle = ink;
    if (!this.last) {
      pen.fillText("tokens per pass appear here", 6, 14);
      return;
    }
    const top = 22, bottom = height - 4, count = Math.max(this.bars.length, 1);
    const most = Math.max(1, ...this.bars), step = (width - 12) / count;
    pen.fillStyle = BAR;
    this.bars.forEach((tokens, i) => {
      const tall = ((bottom - top) * tokens) / most;
      pen.fillRect(6 + i * step, bottom - tall, Math.max(step - 1, 0.5), tall);
    });
    const spent = Math.max(...this.drift.map(([, value]) => value));
    if (spent > 0) {
      pen.strokeStyle = LINE;
      pen.lineWidth = 1.5;
      pen.beginPath();
      this.drift.forEach(([pass, value], i) => {
        const x = 6 + pass * step, y = bottom - ((bottom - top) * value) / spent;
        if (i) pen.lineTo(x, y);
        else pen.moveTo(x, y);
      });
      pen.stroke();
    }
    const mean = this.bars.reduce((sum, tokens) => sum + tokens, 0) / count;
    pen.fillStyle = ink;
    pen.fillText(
      `${mean.toFixed(2)} tokens/pass · drift ${this.last.drift.toFixed(4)}/token · ${this.last.tokens}/${this.last.total}`,
      6, 14, width - 12,
    );
  }
}

// ids of nodes inside subgraphs look like "5:3"
function nodeOf(id) {
  let graph = app.rootGraph ?? app.graph, node = null;
  for (const part of String(id).split(":")) {
    node = graph?.getNodeById(Number(part));
    graph = node?.subgraph;
  }
  return node;
}

const enabled = () => app.extensionManager?.setting?.get(SETTING) ?? true;

app.registerExtension({
  name: "csd.live",
  settings: [
    {
      id: SETTING,
      category: ["CSD", "Live plot", "Show"],
      name: "Show the live plot of tokens per pass and drift",
      type: "boolean",
      defaultValue: true,
      onChange: (value) => {
        for (const [node, plot] of plots) {
          plot.show(value);
          node.setDirtyCanvas?.(true, true);
        }
      },
    },
  ],
  setup() {
    api.addEventListener(EVENT, (message) => {
      if (enabled()) plots.get(nodeOf(message.detail.node))?.push(message.detail);
    });
  },
  nodeCreated(node) {
    if (!NODES.has(node.comfyClass)) return;
    const plot = new Plot(node);
    plots.set(node, plot);
    plot.show(enabled());
    const removed = node.onRemoved;
    node.onRemoved = function (...args) {
      plots.delete(node);
      return removed?.apply(this, args);
    };
  },
});
