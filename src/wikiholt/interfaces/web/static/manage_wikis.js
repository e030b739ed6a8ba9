// All wikis, for operators: the status of each, and a dialog that adds one.
import { send } from "./api.js";
import { openDialog, renderField, renderSelect } from "./dialogs.js";
import { byId, el } from "./dom.js";
import { showMessageLeft } from "./flash.js";
import { announce, renderButton, renderHead } from "./manage_parts.js";
import { StatusList } from "./status_list.js";

const KINDS = [["", "Detect it"], ["git", "A git repository"], ["directory", "A directory of files"]];

export function showWikis(area) {
  area.append(renderHead("Wikis", renderButton("Add a wiki", () => openAdd(list), "primary")),
    el("div", { class: "box small", id: "app.wiki-box", hidden: true }, el("label", { class: "visually-hidden", for: "app.q" }, "Filter the wikis by name"),
      el("input", { id: "app.q", type: "search", placeholder: "Filter by name…", autocomplete: "off", spellcheck: "false" })),
    el("ul", { id: "app.status", class: "rows" }), el("button", { type: "button", id: "app.more", class: "more", hidden: true }, "Show more"));
  showMessageLeft(area);
  const list = new StatusList((slug) => `w/${encodeURIComponent(slug)}/manage`);
  list.load();
  return () => list.stop();
}

function openAdd(list) {
  const slug = el("input", { required: true, maxlength: "200", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "handbook" });
  const source = el("input", { required: true, maxlength: "4096", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "/srv/wikis/handbook" });
  const kind = renderSelect(KINDS);
  openDialog({
    title: "Add a wiki", confirm: "Add",
    content: [renderField("Name", slug, "Lower-case letters, digits and hyphens. It is part of the address."), renderField("Source", source, "The path of a repository or directory on the server, or the URL of a repository."), renderField("Kind", kind)],
    isReady: () => Boolean(slug.value.trim() && source.value.trim()),
    run: async () => {
      const wiki = await send("POST", "wikis", { slug: slug.value.trim(), source: source.value.trim(), settings: kind.value ? { kind: kind.value } : {} });
      announce(`${wiki.slug} was added. Its first sync starts.`);
      await list.load();
      byId("status").querySelector(`[data-slug="${CSS.escape(wiki.slug)}"] a`)?.focus();
    },
  });
}
