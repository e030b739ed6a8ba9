// How many commits the repository is ahead of the index, where the log tells; asked for once for each pair of revisions.
import { get } from "./api.js";

let counted = { pair: "", behind: 0 };
export async function commitsBehind({ indexed_revision: from, head_revision: to }) {
  const pair = `${from} ${to}`;
  if (from && to && counted.pair !== pair) {
    counted = { pair, behind: 0 };
    try {
      const log = await get("changelog", { limit: 100 });
      counted.behind = log.entries.findIndex((entry) => entry.revision === from);
    } catch { /* That it is behind is said anyway; by how much is an extra. */ }
  }
  return counted.behind;
}
