// Where the link of a result leads: to the page of the wiki, at the heading of the passage.
import { encodePath, ROOT } from "./api.js";

export const placeOf = (path, anchor = "") => `${ROOT.pathname}${encodePath(path)}${anchor ? `#${encodeURIComponent(anchor)}` : ""}`;
