// Edit, rename and delete the page that is shown, where the key allows it.
import { encodePath, send } from "./api.js";
import { openDialog, renderCheckbox, renderField } from "./dialogs.js";
import { el, plural } from "./dom.js";
import { leaveMessage } from "./flash.js";

export const readUrl = (path) => `read?page=${encodePath(path)}`;
export const editUrl = (path) => `edit?page=${encodePath(path)}`;

function openRename(path, revision) {
  const input = el("input", { value: path, required: true, maxlength: "1000", autocomplete: "off", spellcheck: "false" });
  const [links, subpages] = [el("input", { type: "checkbox", checked: true }), el("input", { type: "checkbox", checked: true })];
  openDialog({
    title: "Rename this page", confirm: "Rename",
    content: [renderField("New path", input, "Folders are separated by slashes."), renderCheckbox("Update links to this page", links), renderCheckbox("Move its sub-pages and attachments too", subpages)],
    isReady: () => input.value.trim() !== "" && input.value.trim() !== path,
    run: async () => {
      const answer = await send("POST", `pages/${encodePath(path)}/rename`, { new_path: input.value.trim(), update_links: links.checked, move_subpages: subpages.checked, revision });
      const more = [answer.moved.length && `${plural(answer.moved.length, "file")} moved with it`, answer.updated_pages.length && `links on ${plural(answer.updated_pages.length, "page")} updated`].filter(Boolean);
      leaveMessage(`Renamed from ${path}${more.length ? `; ${more.join(", ")}` : ""}.`);
      location.assign(readUrl(answer.new_path));
    },
  });
  input.setSelectionRange(path.lastIndexOf("/") + 1, path.length);
}

function openDelete(path, revision) {
  openDialog({
    title: "Delete this page?", confirm: "Delete the page", danger: true,
    content: el("p", {}, el("strong", {}, path), " is removed in a new commit. Its text stays in the git history. Attachments and sub-pages stay where they are."),
    run: async () => {
      await send("DELETE", `pages/${encodePath(path)}`, { revision });
      leaveMessage(`${path} was deleted. Its history is still there.`);
      location.assign(`history?page=${encodePath(path)}`);
    },
  });
}

// Adds the actions to the page view.
export function addPageActions(main, access) {
  const article = main.querySelector("article[data-page]");
  const actions = article?.querySelector(".page-actions");
  if (!actions || !access.writable) return;
  const { page, revision } = article.dataset;
  const hasOtherEditor = [...actions.children].some((link) => link.textContent === "Edit");
  // The text of a document is extracted from its file: it cannot be edited.
  if (!("document" in article.dataset)) actions.prepend(el("a", { href: editUrl(page) }, hasOtherEditor ? "Edit here" : "Edit"));
  actions.append(el("button", { type: "button", class: "plain-link", on: { click: () => openRename(page, revision) } }, "Rename"),
    el("button", { type: "button", class: "plain-link danger", on: { click: () => openDelete(page, revision) } }, "Delete"));
}
