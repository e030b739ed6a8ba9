// The status page of all visible wikis.
import { showAccessLinks } from "./access.js";
import { setUpKeyButton } from "./key.js";
import { StatusList } from "./status_list.js";

const list = new StatusList((slug) => `w/${encodeURIComponent(slug)}/status`, load);

function load() {
  setUpKeyButton(load);
  showAccessLinks();
  list.load();
}
load();
