// Workflows made for ComfyUI-Janus-Pro open with our nodes at once where that pack is not installed. What stands for
// what is asked of the server; ComfyUI's own offer to replace nodes takes several clicks and says nothing of the losses.
import { app } from "../../../scripts/app.js";
import { api } from "../../../scripts/api.js";

const OLD = /^Janus(ModelLoader|ImageGeneration)$/;
const LOST =
  "Not kept: the numbers behind a seed (other pictures) and top_p (it had no effect there). The model folder goes to models/csd.";
let replaced = 0;

const unknown = (node) => OLD.test(node.type) && !(node.type in LiteGraph.registered_node_types);

async function mappings() {
  const answer = await (await api.fetchApi("/node_replacements")).json();
  const ours = Object.values(answer).flat().filter((mapping) => mapping.new_node_id.startsWith("CSD"));
  return new Map(ours.map((mapping) => [mapping.old_node_id, mapping]));
}

// links of a root graph are arrays, those of a subgraph objects
const FIELDS = ["id", "origin_id", "origin_slot", "target_id", "target_slot", "type"];
const field = (link, name) => (Array.isArray(link) ? link[FIELDS.indexOf(name)] : link[name]);
function assign(link, changes) {
  for (const [name, value] of Object.entries(changes)) link[Array.isArray(link) ? FIELDS.indexOf(name) : name] = value;
}

// a value of the old widget as the new one takes it: a hub id is a folder of that name
function fitted(widget, value) {
  const choices = widget.type === "combo" && Array.isArray(widget.options.values) ? widget.options.values : [];
  const last = (name) => String(name).split("/").at(-1);
  return choices.includes(value) ? value : (choices.find((choice) => last(choice) === last(value)) ?? value);
}

function replacement(old, mapping, links) {
  const node = LiteGraph.createNode(mapping.new_node_id);
  const saved = old.widgets_values ?? [];
  const values = Array.isArray(saved) ? Object.fromEntries(mapping.old_widget_ids.map((id, i) => [id, saved[i]])) : saved;
  const own = mapping.old_widget_ids.filter((id) => id === "control_after_generate");
  const moves = [...(mapping.input_mapping ?? []), ...own.map((id) => ({ new_id: id, old_id: id }))];
  for (const move of moves) {
    const widget = node.widgets?.find((candidate) => candidate.name === move.new_id);
    const value = "set_value" in move ? move.set_value : values[move.old_id];
    if (widget && value !== undefined) widget.value = fitted(widget, value);
  }
  const fresh = node.serialize();
  node.onRemoved?.(); // it was never on the canvas; what extensions keep about it goes
  const kept = new Set();
  fresh.inputs?.forEach((input, slot) => {
    const move = moves.find((candidate) => candidate.new_id === input.name && "old_id" in candidate);
    const link = links.get(old.inputs?.find((candidate) => move && candidate.name === move.old_id)?.link);
    if (!link) return;
    input.link = field(link, "id");
    assign(link, { target_slot: slot });
    kept.add(link);
  });
  for (const move of mapping.output_mapping ?? []) {
    const output = fresh.outputs[move.new_idx];
    output.links = [...(old.outputs?.[move.old_idx]?.links ?? [])];
    for (const link of output.links.map((id) => links.get(id)).filter(Boolean)) {
      assign(link, { origin_slot: move.new_idx, type: output.type });
      kept.add(link);
    }
  }
  const size = fresh.size.map((side, i) => Math.max(side, Number(old.size?.[i] ?? 0)));
  const { id, pos, flags, order, mode, color, bgcolor } = old;
  const title = old.title && old.title !== old.type ? { title: old.title } : {};
  return { node: { ...fresh, id, pos, flags, order, mode, color, bgcolor, size, ...title }, kept };
}

function migrate(graph, known) {
  const links = new Map((graph.links ?? []).filter(Boolean).map((link) => [field(link, "id"), link]));
  graph.nodes.forEach((old, at) => {
    const mapping = unknown(old) && known.get(old.type);
    if (!mapping) return;
    const { node, kept } = replacement(old, mapping, links);
    graph.nodes[at] = node;
    replaced += 1;
    for (const [id, link] of links) {
      if ([field(link, "origin_id"), field(link, "target_id")].includes(old.id) && !kept.has(link)) links.delete(id);
    }
  });
  for (const node of graph.nodes) {
    for (const input of node.inputs ?? []) if (!links.has(input.link)) input.link = null;
    for (const output of node.outputs ?? []) output.links = output.links?.filter((id) => links.has(id)) ?? null;
  }
  graph.links = [...links.values()];
}

app.registerExtension({
  name: "csd.migration",
  async beforeConfigureGraph(graph) {
    const graphs = [graph, ...(graph.definitions?.subgraphs ?? [])];
    const concerned = graphs.filter((candidate) => candidate.nodes?.some(unknown));
    if (!concerned.length) return;
    const known = await mappings();
    for (const candidate of concerned) migrate(candidate, known);
  },
  afterConfigureGraph() {
    if (!replaced) return;
    const summary = `${replaced} nodes of ComfyUI-Janus-Pro opened as CSD nodes`;
    app.extensionManager.toast.add({ severity: "info", summary, detail: LOST, life: 15000 });
    replaced = 0;
  },
});
