// Keeps an open page true without a reload: fetches the same page and moves every difference in at once.
// Never runs while the page is hidden, never more often than once a second, never touches what the reader has opened.

const EVERY_MS = 2000;
const SLOWEST_MS = 8000;

// Makes `old` like `fresh`, keeping the elements that stay: focus, selection and open rows live in them.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    old.replaceWith(document.importNode(fresh, true));
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  if (old.hasAttribute("data-keep")) return;
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  if (old.nodeName === "TEXTAREA" && old.value !== fresh.value && document.activeElement !== old) old.value = fresh.value;
  children(old, fresh);
}

function children(old, fresh) {
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const wanted = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
  let place = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    while (place?.id && !wanted.has(place.id)) place = drop(place);
    const known = next.id ? named.get(next.id) : undefined;
    if (known && known !== place) old.insertBefore(known, place);
    if (known) {
      if (known === place) place = place.nextSibling;
      morph(known, next);
    } else if (place && !place.id && !next.id && place.nodeName === next.nodeName) {
      const after = place.nextSibling;
      morph(place, next);
      place = after;
    } else {
      old.insertBefore(document.importNode(next, true), place);
    }
  }
  while (place) place = drop(place);
}

function drop(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

function time(moment) {
  return moment.toLocaleTimeString("en-GB");
}

export class Live {
  constructor(root, onChange) {
    this.root = root;
    this.onChange = onChange;
    this.wait = EVERY_MS;
    this.goodAt = new Date();
    this.timer = null;
    // A page that could not be read says itself what is wrong; it only asks again, at its own pace.
    this.retryMs = 1000 * Number(root.dataset.live || 0);
    this.note = document.getElementById("live-note");
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.soon(0)));
    if (!document.hidden) this.soon(this.retryMs || EVERY_MS);
  }

  soon(ms) {
    this.stop();
    this.timer = setTimeout(() => this.step(), ms);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  async step() {
    const abort = new AbortController();
    const cut = setTimeout(() => abort.abort(), 10000);
    try {
      const answer = await fetch(location.href, { headers: { "X-Live": "1" }, signal: abort.signal, cache: "no-store" });
      if (answer.status === 401) return this.say("You are signed out. Sign in again to see new figures.");
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (document.hidden) return;
      this.accept(page);
    } catch {
      this.failed();
    } finally {
      clearTimeout(cut);
    }
    if (!document.hidden) this.soon(this.wait);
  }

  accept(page) {
    const fresh = page.getElementById(this.root.id);
    if (!fresh) return;
    // What is around the figures is missing as well.
    if (this.retryMs) return location.reload();
    this.wait = EVERY_MS;
    this.goodAt = new Date();
    this.say("");
    morph(this.root, fresh);
    document.title = page.title;
    this.onChange(this.root);
  }

  failed() {
    if (this.retryMs) {
      this.wait = this.retryMs;
      document.getElementById("tried").textContent = `Last tried at ${time(new Date())} (your clock).`;
      return;
    }
    this.wait = Math.min(SLOWEST_MS, this.wait * 2);
    this.say(`Not updated since ${time(this.goodAt)} (your clock): the figures cannot be read right now. `
      + "Those below are the last good ones; this page tries again by itself.");
  }

  say(text) {
    if (this.note.textContent === text) return;
    this.note.textContent = text;
    this.note.hidden = !text;
  }
}
