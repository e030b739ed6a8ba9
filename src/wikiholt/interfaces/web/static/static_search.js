// Searches the files that `wikiholt export` writes, without a server. box.js shows the results.
// Words are analysed and pages are ranked as the index does it: docs/adr/0057.
(() => {
  "use strict";
  const script = document.currentScript;
  const base = new URL("PARTS/", script.src);
  const MAX_PREFIX_FILES = 4;
  let constants, analyser, pages, vectors;

  // Files: a script calls wikiholtPart with compressed data, because a page of a directory may not fetch files.
  const loading = new Map();
  window.wikiholtPart = (text) => { document.currentScript.part = text; };

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  function load(name, parse) {
    if (!loading.has(name)) loading.set(name, new Promise((resolve, reject) => {
      const element = document.createElement("script");
      const fail = () => { element.remove(); loading.delete(name); reject(new Error("A file of the search cannot be loaded. Reload the page.")); };
      element.src = new URL(name, base);
      element.onerror = fail;
      element.onload = () => { if (element.part === undefined) fail(); else { element.remove(); unpack(element.part).then(parse).then(resolve, fail); } };
      document.head.append(element);
    }));
    return loading.get(name);
  }

  const decoder = new TextDecoder();
  const parseJson = (bytes) => JSON.parse(decoder.decode(bytes));

  function unpackNumbers(bytes) {
    const numbers = new Int8Array(bytes.length * 2);
    for (let i = 0; i < bytes.length; i++) { numbers[2 * i] = (bytes[i] & 15) - 8; numbers[2 * i + 1] = (bytes[i] >> 4) - 8; }
    return numbers;
  }

  // The words of a file by name: their terms, pages, counts and vector.
  function parseWords(bytes) {
    const size = new DataView(bytes.buffer).getUint32(0, true);
    const lines = decoder.decode(bytes.subarray(4, 4 + size)).split("\n");
    let at = 4 + size;
    const read = () => { let value = 0, factor = 1, byte; do { byte = bytes[at++]; value += (byte & 127) * factor; factor *= 128; } while (byte > 127); return value; };
    return new Map(lines.map((line) => {
      const [word, ...stems] = line.split(" ");
      const head = read();
      const count = Math.floor(head / 2);
      const rows = new Int32Array(count), counts = new Float64Array(count);
      for (let i = 0, row = 0; i < count; i++) rows[i] = row += read();
      for (let i = 0; i < count; i++) counts[i] = read();
      const entry = { word, stems, rows, counts };
      if (head % 2) {
        entry.scale = Math.exp((bytes[at++] - 224) / 16);
        entry.vector = unpackNumbers(bytes.subarray(at, at += constants.dimensions / 2));
      }
      return [word, entry];
    }));
  }

  // The file that has a word, if one does.
  function findFile(word) {
    let low = 0, high = constants.firstWords.length;
    while (low < high) { const middle = (low + high) >> 1; if (constants.firstWords[middle] <= word) low = middle + 1; else high = middle; }
    return low - 1;
  }

  const known = new Map();
  async function loadFiles(numbers) {
    const wanted = [...new Set(numbers)].filter((number) => number >= 0);
    for (const words of await Promise.all(wanted.map((number) => load(`words-${number}.js`, parseWords)))) for (const [word, entry] of words) known.set(word, entry);
  }
  const loadWords = (words) => loadFiles(words.map(findFile));

  // Analysis: text to words, and words to terms, as text/analysis.py does it.
  function makeAnalyser({ marks, accents, unspaced, letters, extensions }) {
    const token = new RegExp(`[\\p{L}\\p{N}_]+(?:[.\\-'’·][\\p{L}\\p{N}_]+|[${marks}]+[\\p{L}\\p{N}_]*)*(?:[+#](?<=\\b[a-zA-Z].)(?<![.\\-'’·][a-zA-Z].)(?:(?<=#)|\\+)(?![\\p{L}\\p{N}_])|)`, "gu");
    const run = new RegExp(`([${unspaced}]+)|[^${unspaced}]+`, "gu");
    const part = new RegExp(`(?:[\\p{L}\\p{N}]|[${marks}])+`, "gu");
    const removed = new RegExp(`[${accents}]`, "gu");
    const camel = /[a-z][A-Z]|[A-Z]{2}[a-z]/;
    const camelPart = /[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\p{Nd}+|[^\P{L}A-Za-z]+/gu;
    const extension = new RegExp(`(?<=[^/])(?:${extensions.map((each) => each.replaceAll(".", "\\.")).join("|")})$`, "i");
    const stripAccents = (text) => {
      const plain = text.toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ").normalize("NFKD").replace(removed, "");
      return Array.from(plain, (sign) => letters[sign] ?? sign).join("").normalize("NFKC");
    };
    const fold = (word) => [...stripAccents(word).replace(/\s+/g, "")].slice(0, 64).join("");
    const makeKey = (word) => (constants.turkish ? word.replaceAll("İ", "i").replaceAll("I", "ı") : word).toLowerCase().normalize("NFC");

    function splitToken(text) {
      text = text.replace(/['’][sS]$/, "");
      if (/['’]/.test(text)) return text.split(/['’]/).filter(Boolean).flatMap(splitToken);
      const stripped = text.replace(/^[_.\-·]+|[_.\-·]+$/g, "");
      if (!stripped) return [];
      if (/[+#]$/.test(text)) return [{ key: makeKey(text), folded: text.toLowerCase() }];
      let parts = text.match(part) ?? [];
      if (text.length <= 64 && camel.test(text)) parts = parts.flatMap((each) => (camel.test(each) ? each.match(camelPart) : [each]));
      const words = parts.map((each) => ({ key: makeKey(each), folded: fold(each) })).filter((each) => each.folded);
      const whole = fold(stripped);
      if (whole && !(words.length === 1 && words[0].folded === whole)) words.push({ key: makeKey(stripped), folded: whole });
      return words;
    }
    // The words of a token; pairs of characters are terms already.
    const splitRuns = (text) => [...text.matchAll(run)].flatMap(([all, pairs]) => {
      if (!pairs) return splitToken(all);
      const signs = [...pairs];
      return (signs.length > 1 ? signs.slice(1).map((sign, i) => signs[i] + sign) : signs).map((term) => ({ term }));
    });
    const findTokens = (text) => text.normalize("NFKC").match(token) ?? [];
    return {
      stripAccents, fold, findTokens, splitRuns,
      findUnits: (text) => findTokens(text).flatMap(splitRuns),
      iterTokens: (text) => text.matchAll(token),
      findRuns: (text) => [...text.matchAll(run)],
      foldName: (text) => stripAccents(text.trim().replace(extension, "")).replace(/[\s_/.\-\u2010-\u2015]+/g, " ").trim(),
    };
  }

  function findIdentifiers(text) {
    const plain = text.replace(/https?:\/\/(?:www\.)?/g, "");
    const joined = [...plain.matchAll(/(?<![\w.\-])[.\-]*(\w[\w.\-]*(?:[/\\@:]{1,3}\.?\w[\w.\-]*)+)/g)].map((match) => match[1]);
    const names = [...joined, ...(plain.match(/(?<![\p{L}\p{N}_.])\.[A-Za-z]\w+/gu) ?? [])];
    return [...new Set(names.map((name) => name.replace(/[.\-]+$/, "").toLowerCase()).filter((name) => name.length <= 64))];
  }

  // The terms of a text in each language.
  async function toTerms(text) {
    const units = analyser.findUnits(text);
    await loadWords(units.filter((unit) => !unit.term).map((unit) => unit.key));
    const getTerm = (unit, language) => { const stems = known.get(unit.key)?.stems ?? []; return stems[language] ?? stems[0] ?? unit.folded; };
    return constants.stops.map((_, language) => units.map((unit) => unit.term ?? getTerm(unit, language)).filter(Boolean));
  }

  const blank = " \0 ";
  const unquote = (text) => text.replace(/^["“”„«]|["“”»]$/g, "");

  // A query: what it looks for, in each language, and which pages it may find.
  async function parseQuery(text) {
    const filters = [], phrases = [], excluded = [];
    const rest = text.replace(/(?<=\s|^)(-?)(tag|path|title):(["“”„«][^"“”„«»]*["“”»]?|[^\s"“”„«»]\S*)/g, (_, minus, name, value) => { filters.push({ minus, name, value: unquote(value) }); return " "; });
    let plain = rest.replace(/(?<=\s|^)(-?)["“”„«]([^"“”„«»]*)["“”»]/g, (_, minus, words) => { (minus ? excluded : phrases).push(words); return blank; });
    const isCommand = (before) => { const words = before.trim().split(/\s+/); return words.some((word) => constants.programs.includes(word)) || (words.length === 1 && constants.commands.includes(words[0])); };
    plain = plain.replace(new RegExp(`(?<=\\s|^)-(?![A-Za-z]?\\d{1,3}(?!\\w))(?=[\\p{L}\\p{N}]{2}|[${constants.cjk}])(\\S+)`, "gu"), (all, word, at) => (isCommand(plain.slice(0, at)) ? all : (excluded.push(word), blank)));
    const [terms, ...groups] = await Promise.all([plain, ...phrases, ...excluded].map(toTerms));
    const languages = constants.stops.map((stops, language) => {
      const all = [...new Set(terms[language])];
      const of = (from, to) => groups.slice(from, to).map((group) => group[language]).filter((group) => group.length);
      const quoted = of(0, phrases.length);
      const significant = all.filter((term) => !stops.includes(term));
      return { terms: (significant.length || quoted.length ? significant : all).slice(0, 64), phrases: quoted, excluded: of(phrases.length) };
    });
    const variants = languages.filter((one, at) => languages.findIndex((other) => String(other.terms) === String(one.terms) && String(other.phrases) === String(one.phrases)) === at);
    const meant = [plain.replaceAll("\0", ""), ...phrases].join(" ").trim();
    return { filters, variants, identifiers: findIdentifiers(plain), prefix: findPrefix(plain, variants[0].terms), text: meant, typed: rest, model: [...new Set([...terms[0], ...groups.slice(0, phrases.length).flatMap((group) => group[0])])] };
  }

  function findPrefix(text, terms) {
    if (/\s$|^$/.test(text)) return "";
    const last = analyser.findTokens(text).at(-1);
    if (!last) return "";
    const of = analyser.splitRuns(last).flatMap((unit) => (unit.term ? [unit.term] : [unit.folded, ...(known.get(unit.key)?.stems ?? [])]));
    if (!of.some((term) => terms.includes(term))) return "";
    const [run, pairs] = analyser.findRuns(last).at(-1);
    if (pairs) return [...run].slice(-2).join("");
    const prefix = analyser.fold(run.replace(/^[_.\-·]+|[_.\-·]+$/g, ""));
    return prefix.length > 1 ? prefix : "";
  }

  // Words: BM25 as text/bm25.py and search/candidates.py have it.
  const NOTHING = { rows: new Int32Array(), counts: new Float64Array() };
  const getList = (term) => known.get(term) ?? NOTHING;
  const getPhraseList = (terms) => {
    const lists = terms.map((term) => { const { rows, counts } = getList(term); return new Map([...rows].map((row, i) => [row, counts[i]])); });
    const rows = [...lists[0].keys()].filter((row) => lists.every((list) => list.has(row)));
    return { rows: Int32Array.from(rows), counts: Float64Array.from(rows, (row) => Math.min(...lists.map((list) => list.get(row)))) };
  };
  const getIdf = (count) => { const value = Math.log((pages.length - count + 0.5) / (count + 0.5)); return value > 0 ? value : 1e-6; };
  const getMaxScore = (count) => getIdf(count) * (constants.k1 + 1);

  function addScores(lists) {
    const scores = new Float64Array(pages.length);
    for (const { rows, counts } of lists) {
      const idf = getIdf(rows.length);
      for (let i = 0; i < rows.length; i++) scores[rows[i]] += (counts[i] * (constants.k1 + 1)) / (counts[i] + pages[rows[i]].norm) * idf;
    }
    return scores;
  }
  const selectBest = (scores, allowed) => Array.from(scores, (score, row) => [row, score]).filter(([row, score]) => score > 0 && allowed[row])
    .sort((one, other) => other[1] - one[1] || one[0] - other[0]).slice(0, constants.depth);

  function scoreVariant({ terms, phrases }, query, allowed) {
    const phraseLists = phrases.map(getPhraseList);
    const all = [...query.identifiers, ...terms];
    const found = new Map(selectBest(addScores([...all.map(getList), ...phraseLists]), allowed));
    if (query.prefix) {
      const sums = new Map();
      for (const [word, { rows, counts }] of known) if (word.startsWith(query.prefix) && !(word >= query.prefixEnd)) rows.forEach((row, i) => sums.set(row, (sums.get(row) ?? 0) + counts[i]));
      const scores = addScores([{ rows: Int32Array.from(sums.keys()), counts: Float64Array.from(sums.values()) }]);
      for (const row of all.length ? getList(all.at(-1)).rows : []) scores[row] = 0;
      for (const [row, score] of selectBest(scores, allowed)) found.set(row, (found.get(row) ?? 0) + score * constants.prefix);
    }
    const counts = [...terms.map((term) => getList(term).rows.length), ...phraseLists.map((list) => list.rows.length)];
    const best = counts.reduce((sum, count) => sum + getMaxScore(count), 0);
    const onlyScore = getMaxScore(1);
    // In a short query, a term that no other page has counts in full.
    for (const term of found.size && onlyScore >= constants.only * best ? all : []) {
      const list = getList(term);
      const [row] = list.rows;
      if (list.rows.length !== 1 || !allowed[row]) continue;
      const score = addScores([list])[row];
      if (found.has(row) || !phrases.length) found.set(row, (found.get(row) ?? score) + onlyScore - score);
    }
    return [...found].map(([row, score]) => [row, Math.min(1, best ? score / best : 1)]);
  }

  // Titles, as search/title_match.py has them.
  const getDice = (query, terms) => (query.size && terms.size ? (2 * count(query, terms)) / (query.size + terms.size) : 0);
  const count = (query, terms) => { let sum = 0; for (const term of query) sum += terms.has(term); return sum; };

  function matchTitles(page, queries) {
    let overlap = 0, share = 0;
    for (const query of queries) for (const { own, all } of page.names) {
      const shared = count(query, all);
      if (!shared) continue;
      const byName = getDice(query, own);
      overlap = Math.max(overlap, byName === 1 || all.size === own.size ? byName : (1 - constants.path) * byName + constants.path * getDice(query, all));
      share = Math.max(share, shared / all.size);
    }
    return { overlap, share };
  }

  // Meaning: the cosine of every part of every page with the sum of the vectors of the terms.
  function compareMeaning(terms) {
    const dimensions = constants.dimensions;
    const query = new Float64Array(dimensions);
    for (const { vector, scale } of terms.map(getList)) if (vector) for (let i = 0; i < dimensions; i++) query[i] += vector[i] * scale;
    const length = Math.hypot(...query);
    if (!length) return null;
    const near = [];
    for (let at = 0, part = 0; part < vectors.lengths.length; part++) {
      let sum = 0;
      for (let i = 0; i < dimensions; i++) sum += query[i] * vectors.numbers[at++];
      near.push(sum / (length * vectors.lengths[part]));
    }
    return { near, getPageCosine: (page) => { let sum = 0; for (let i = 0; i < dimensions; i++) sum += query[i] * page.mean[i]; return sum / length; } };
  }

  const normalize = (cosine) => Math.max(0, (cosine - constants.scale[0]) / (constants.scale[1] - constants.scale[0]));

  function rankPages(query, allowed, mode) {
    const shares = new Map();
    for (const variant of query.variants) for (const [row, share] of scoreVariant(variant, query, allowed)) shares.set(row, Math.max(share, shares.get(row) ?? 0));
    const meaning = mode === "keyword" ? null : compareMeaning(query.model);
    const sets = query.variants.map(({ terms, phrases }) => new Set([...terms, ...phrases.flat()]));
    const words = analyser.findTokens(query.text).length, size = sets[0].size;
    const sentence = words ? 1 - Math.min(1, size / words) : 0;
    const isCode = (term) => term.length >= constants.code && /\p{Nd}/u.test(term) && /\p{L}/u.test(term);
    const shape = [Math.min(1, size / constants.long), 1 / Math.max(size, 1), Number([...sets[0]].some(isCode))];
    const [plain, more, ofWords] = constants.weights[meaning ? "hybrid" : "keyword"];
    const weights = plain.map((weight, i) => weight + sentence * more[i]);
    weights[2] += ofWords.reduce((sum, weight, i) => sum + weight * shape[i], 0);
    const names = new Set([analyser.foldName(query.typed), analyser.foldName(query.text)]);
    names.delete("");
    const found = [];
    pages.forEach((page, row) => {
      if (!allowed[row]) return;
      const isNamed = page.foldedNames.some((name) => names.has(name));
      const parts = meaning ? meaning.near.slice(page.firstPart, page.firstPart + page.parts) : [];
      const cosine = Math.max(-1, ...parts);
      if (!isNamed && !shares.has(row) && cosine <= 0) return;
      const { overlap, share } = matchTitles(page, sets);
      const chunk = parts.length ? normalize(cosine) : 0;
      const whole = parts.length ? normalize(meaning.getPageCosine(page)) : chunk;
      const features = [chunk, whole, shares.get(row) ?? 0, overlap, overlap * (0.6 * chunk + 0.4 * whole), share, Math.log(Math.max(page.chunks, 1))];
      found.push({ page, row, parts, cosine, isNamed, rank: features.reduce((sum, value, i) => sum + value * weights[i], 0) });
    });
    return found.sort((one, other) => other.isNamed - one.isNamed || other.rank - one.rank || other.cosine - one.cosine || one.row - other.row);
  }

  const foldTag = (tag) => { const key = tag.toLowerCase(); return key.length > 3 && /[^s]s$/.test(key) ? key.slice(0, -1) : key; };
  const foldPath = (path) => path.replace(/^\/+|\/+$/g, "").toLowerCase().normalize("NFC").replace(/[\s_-]+/g, "-");
  const FILTERS = {
    tag: (page, value) => page.tags.some((tag) => foldTag(tag) === foldTag(value)),
    path: (page, value) => `${foldPath(page.path)}/`.startsWith(`${foldPath(value)}/`),
    title: (page, value) => page.titles.some((title) => analyser.stripAccents(title).includes(analyser.stripAccents(value))),
  };

  function findAllowed({ filters, variants }) {
    const has = (terms, row) => terms.every((term) => getList(term).rows.includes(row));
    return pages.map((page, row) => filters.every(({ minus, name, value }) => FILTERS[name](page, value) !== Boolean(minus))
      && variants.some(({ phrases }) => phrases.every((terms) => has(terms, row)))
      && !variants.some(({ excluded }) => excluded.some((terms) => has(terms, row))));
  }

  // Snippets: the part of a passage with most of the query's words, which are marked.
  function makeMatcher(query) {
    const terms = new Set([...query.variants.flatMap((variant) => [...variant.terms, ...variant.phrases.flat()]), ...query.identifiers]);
    const isMatch = (unit) => (unit.term ? terms.has(unit.term) : terms.has(unit.folded) || (known.get(unit.key)?.stems ?? []).some((stem) => terms.has(stem)) || (query.prefix && unit.folded.startsWith(query.prefix)));
    return (text) => {
      const spans = [];
      for (const found of analyser.iterTokens(text)) for (const word of found[0].matchAll(/[^\s_.\-·'’/]+/g)) {
        const start = found.index + word.index;
        for (const run of analyser.findRuns(word[0])) {
          const from = start + run.index;
          if (run[1]) { for (let i = 0; i < run[0].length; i++) if (terms.has(run[0].slice(i, i + 2)) || terms.has(run[0][i])) spans.push([from + i, from + i + (terms.has(run[0].slice(i, i + 2)) ? 2 : 1)]); }
          else if (analyser.splitRuns(run[0]).some(isMatch)) spans.push([from, from + run[0].length]);
        }
      }
      return spans;
    };
  }

  // Ranges count characters, not UTF-16 units.
  const toCharacters = (text, spans) => spans.map((span) => span.map((at) => [...text.slice(0, at)].length));

  function cutSnippet(text, length, match) {
    const spans = match(text);
    if (text.length <= length) return { snippet: text, matches: toCharacters(text, spans) };
    let start = 0, most = 0;
    for (const [from] of spans) {
      const inside = spans.filter((span) => span[0] >= from && span[1] <= from + length);
      const kinds = new Set(inside.map((span) => text.slice(...span).toLowerCase().slice(0, 5)));
      const value = kinds.size * 100 + inside.length;
      if (value > most) [most, start] = [value, from - Math.min(from, Math.max(0, (length - inside.at(-1)[1] + from) / 3))];
    }
    start = Math.round(Math.min(start, text.length - length));
    if (start) { const space = text.indexOf(" ", start); if (space > 0 && space - start < 30) start = space + 1; }
    let end = Math.min(text.length, start + length);
    if (end < text.length) { const space = text.lastIndexOf(" ", end); if (end - space < 30) end = space; }
    const snippet = `${start ? "…" : ""}${text.slice(start, end)}${end < text.length ? "…" : ""}`;
    const shift = (start ? 1 : 0) - start;
    return { snippet, matches: toCharacters(snippet, spans.filter((span) => span[0] >= start && span[1] <= end).map((span) => span.map((at) => at + shift))) };
  }

  async function makeHit({ page, parts }, query, match) {
    const passages = (await load(`text-${page.file}.js`, parseJson))[page.place];
    const terms = [...new Set(query.variants.flatMap((variant) => [...variant.terms, ...variant.phrases.flat()]))].map((term) => (term.length > 4 && /^\p{L}+$/u.test(term) ? term.slice(0, -1) : term));
    const contained = passages.map(([headings, , text]) => { const folded = analyser.stripAccents(`${headings.at(-1) ?? ""} ${text}`); return terms.filter((term) => folded.includes(term)); });
    const weigh = (term) => Math.log1p(passages.length / contained.filter((each) => each.includes(term)).length);
    const total = terms.filter((term) => contained.some((each) => each.includes(term))).reduce((sum, term) => sum + weigh(term), 0) || 1;
    const scores = passages.map((_, i) => (parts.length ? normalize(parts[Math.floor((i * parts.length) / passages.length)]) : 0) + constants.passageWords * contained[i].reduce((sum, term) => sum + weigh(term), 0) / total);
    const [headings, anchor, text] = passages[scores.indexOf(Math.max(...scores))] ?? [[], "", ""];
    return {
      name: page.titles[0], path: page.path, url: anchor ? `${page.url}#${encodeURIComponent(anchor).replaceAll("%2F", "/")}` : page.url, anchor, tags: page.tags,
      name_matches: toCharacters(page.titles[0], match(page.titles[0])), heading_path: headings, heading_matches: headings.map((heading) => toCharacters(heading, match(heading))),
      ...cutSnippet(text || page.titles[0], constants.snippet, match),
    };
  }

  // Start: what every search needs.
  function readStart(start) {
    constants = { ...start.constants, dimensions: start.dimensions, firstWords: start.words };
    analyser = makeAnalyser(constants);
    const total = start.pages.reduce((sum, page) => sum + page[4], 0);
    const files = start.texts.flatMap((size, file) => Array.from({ length: size }, (_, place) => ({ file, place })));
    let firstPart = 0;
    pages = start.pages.map(([path, url, names, tags, length, chunks], row) => {
      const toSet = (text) => new Set(text ? text.split(" ") : []);
      const page = {
        path, url, tags, chunks, ...files[row], parts: start.parts[row], firstPart, titles: names.map(([name]) => name),
        names: names.map(([, own, more]) => ({ own: toSet(own), all: toSet(`${own} ${more}`.trim()) })),
        foldedNames: [...names.map(([name]) => name), path, path.split("/").at(-1)].map(analyser.foldName),
        norm: constants.k1 * (1 - constants.b + constants.b * length / (total / start.pages.length || 1)),
      };
      firstPart += page.parts;
      return page;
    });
  }

  function readVectors(numbers) {
    const dimensions = constants.dimensions;
    vectors = { numbers, lengths: [] };
    for (const page of pages) {
      page.mean = new Float64Array(dimensions);
      for (let part = page.firstPart; part < page.firstPart + page.parts; part++) {
        const vector = numbers.subarray(part * dimensions, (part + 1) * dimensions);
        const length = Math.hypot(...vector) || 1;
        vectors.lengths.push(length);
        vector.forEach((value, i) => { page.mean[i] += value / length; });
      }
      const length = Math.hypot(...page.mean) || 1;
      page.mean = page.mean.map((value) => value / length);
    }
  }

  let opening = null;
  const open = () => (opening ??= Promise.all([load("start.js", parseJson), load("vectors.js", unpackNumbers)])
    .then(([start, numbers]) => { readStart(start); readVectors(numbers); }, (error) => { opening = null; throw error; }));

  // The best pages as the API gives them. `mode` is hybrid or keyword.
  async function search(text, { limit = 8, mode = "hybrid", relatedCosine } = {}) {
    await open();
    if (relatedCosine) constants.scale[1] = relatedCosine;
    const query = await parseQuery(text.slice(0, 2000));
    await loadWords([...query.identifiers, ...query.model, ...query.variants.flatMap(({ terms, phrases, excluded }) => [...terms, ...phrases.flat(), ...excluded.flat()])]);
    if (query.prefix) {
      const first = findFile(query.prefix), last = findFile(query.prefix + "\uFFFF");
      await loadFiles(Array.from({ length: Math.min(last - first + 1, MAX_PREFIX_FILES) }, (_, i) => first + i));
      query.prefixEnd = constants.firstWords[first + MAX_PREFIX_FILES];
    }
    const ranked = query.text ? rankPages(query, findAllowed(query), mode) : pages.map((page, row) => ({ page, row, parts: [] })).filter(({ row }) => query.filters.length && findAllowed(query)[row]);
    const match = makeMatcher(query);
    const results = await Promise.all(ranked.slice(0, limit).map((found) => makeHit(found, query, match)));
    const isQuoted = query.variants.some(({ phrases }) => phrases.length);
    return { query: text, results, nothing_relevant: false, note: isQuoted ? "These pages have all of the quoted words; their order is not checked." : "" };
  }

  script.search = search;
})();
