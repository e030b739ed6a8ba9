// The URL of a result: the page in Otterwiki, at the heading of the passage.
import { encodePath, ROOT } from "./api.js";

export const pageUrl = (path, anchor = "") => `${ROOT.pathname}${encodePath(path)}${anchor ? `#${encodeURIComponent(anchor)}` : ""}`;
