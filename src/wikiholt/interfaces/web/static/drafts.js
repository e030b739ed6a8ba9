// Text that is not saved survives a reload or a crash of the tab. It stays in this tab.
const makeKey = (path) => `wikiholt.draft:${new URL("./", location.href).pathname}${path}`;

export function keepDraft(path, text) { try { sessionStorage.setItem(makeKey(path), text); } catch { /* leaving the page still asks */ } }
export function readDraft(path) { try { return sessionStorage.getItem(makeKey(path)); } catch { return null; } }
export function forgetDraft(path) { try { sessionStorage.removeItem(makeKey(path)); } catch { /* nothing stored */ } }
