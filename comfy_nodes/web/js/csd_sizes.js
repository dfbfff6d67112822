// A list of the sizes the connected model can draw, on the nodes that draw. It sets width and height, which are what is
// saved and run; it is no value of its own.
import { app } from "../../../scripts/app.js";
import { api } from "../../../scripts/api.js";

const NODES = new Set(["CSDSampler", "CSDQuickGenerate"]);
const LOADER = "CSDLoadTarget", EMBEDDED = "embedded";
const UNKNOWN = "known once the model is there", CONNECTED = "as connected";
const FROM_OUTSIDE = -10; // origin of a link that enters a subgraph

const lists = new Map(); // node -> SizeList
const asked = new Map(); // model -> promise of [[width, height], ...]

function sizesOf(model) {
  if (!asked.has(model)) {
    const answer = api.fetchApi(`/csd/sizes?model=${encodeURIComponent(model)}`).then((response) => response.json());
    asked.set(model, answer.then((content) => content.sizes ?? []).catch(() => []));
  }
  return asked.get(model);
}

function hostOf(graph, among = app.rootGraph ?? app.graph) {
  for (const node of among.nodes) {
    if (!node.subgraph) continue;
    const host = node.subgraph === graph ? node : hostOf(graph, node.subgraph);
    if (host) return host;
  }
  return null;
}

// the node behind an input, through reroutes and out of subgraphs
function originOf(node, slot) {
  const link = node.graph?.getLink(node.inputs[slot]?.link);
  if (!link) return null;
  if (link.origin_id === FROM_OUTSIDE) {
    const host = hostOf(node.graph);
    return host && originOf(host, link.origin_slot);
  }
  const origin = node.graph.getNodeById(link.origin_id);
  return origin?.type === "Reroute" ? originOf(origin, 0) : origin;
}

function modelOf(node) {
  const slot = node.inputs.findIndex((input) => input.name === "target");
  if (node.inputs[slot].link == null) return node.comfyClass === "CSDQuickGenerate" ? EMBEDDED : null;
  const origin = originOf(node, slot);
  return origin?.comfyClass === LOADER ? origin.widgets.find((widget) => widget.name === "model").value : null;
}

const label = ([width, height]) => `${width} x ${height}`;

class SizeList {
  constructor(node) {
    this.node = node;
    this.sides = ["width", "height"].map((name) => node.widgets.find((widget) => widget.name === name));
    this.sizes = [];
    this.widget = node.addWidget("combo", "size", UNKNOWN, (chosen) => this.choose(chosen), {
      values: [UNKNOWN],
      serialize: false,
    });
    this.widget.serialize = false; // saved widget values must not shift
    node.widgets.splice(node.widgets.indexOf(this.sides[1]) + 1, 0, node.widgets.pop()); // above the live plot
    this.widget.tooltip = "Sizes the connected model draws; sets width and height.";
    for (const side of this.sides) after(side, "callback", () => this.show());
    after(node, "onConnectionsChange", () => this.refresh());
  }

  async refresh() {
    const model = modelOf(this.node), sizes = model == null ? [] : await sizesOf(model);
    if (model !== modelOf(this.node)) return; // another refresh is under way
    this.sizes = sizes;
    this.widget.options.values = sizes.length ? sizes.map(label) : [UNKNOWN];
    this.show();
  }

  // a side of 0 is the usual size's
  show() {
    const linked = this.node.inputs.some((input) => ["width", "height"].includes(input.name) && input.link != null);
    const size = this.sides.map((side, i) => side.value || this.sizes[0]?.[i]);
    const drawn = this.sizes.some((offered) => label(offered) === label(size));
    this.widget.disabled = linked;
    if (linked) this.widget.value = CONNECTED;
    else if (!this.sizes.length) this.widget.value = UNKNOWN;
    else this.widget.value = drawn ? label(size) : `${label(size)}: not of this model`;
    this.node.setDirtyCanvas?.(true, true);
  }

  // the usual size is left to the model, so that it stays usual with another one
  choose(chosen) {
    const at = this.sizes.findIndex((size) => label(size) === chosen);
    if (at < 0) return;
    this.sides.forEach((side, i) => {
      side.value = at ? this.sizes[at][i] : 0;
    });
    this.show();
  }
}

function after(owner, method, action) {
  const before = owner[method];
  owner[method] = function (...args) {
    const result = before?.apply(this, args);
    action();
    return result;
  };
}

const refreshAll = () => {
  for (const list of lists.values()) list.refresh();
};

app.registerExtension({
  name: "csd.sizes",
  nodeCreated(node) {
    if (node.comfyClass === LOADER) after(node.widgets.find((widget) => widget.name === "model"), "callback", refreshAll);
    if (!NODES.has(node.comfyClass)) return;
    const list = new SizeList(node);
    lists.set(node, list);
    after(node, "onRemoved", () => lists.delete(node));
    setTimeout(() => list.refresh());
  },
  afterConfigureGraph: refreshAll,
  refreshComboInNodes() {
    asked.clear(); // checkpoints may have come or gone
    refreshAll();
  },
});
