// Counts the commits by which the repository is ahead of the index; requested once for each pair of revisions.
import { get } from "./api.js";

let cached = { pair: "", behind: 0 };
export async function countCommitsBehind({ indexed_revision: from, head_revision: to }) {
  const pair = `${from} ${to}`;
  if (from && to && cached.pair !== pair) {
    cached = { pair, behind: 0 };
    try {
      const log = await get("changelog", { limit: 100 });
      cached.behind = log.entries.findIndex((entry) => entry.revision === from);
    } catch { /* The page shows that the index is behind; the number is optional. */ }
  }
  return cached.behind;
}
