// Where the link of a result leads: to the page's preview, beside the results.
import { addressOf } from "./address.js";

export const placeOf = (path, anchor, state) => addressOf({ ...state, page: path, anchor });
