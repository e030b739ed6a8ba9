// The URL of a result: the preview of the page, beside the results.
import { buildUrl } from "./url_state.js";

export const pageUrl = (path, anchor, state) => buildUrl({ ...state, page: path, anchor });
