// Runs before Ray's scripts in a page without an origin, where storage and cookies are errors.
(() => {
  // The window's name outlives a reload, as a chosen time zone needs, and ends with the tab.
  let kept;
  try {
    kept = JSON.parse(window.name);
  } catch {}
  kept = { local: {}, session: {}, ...(kept && typeof kept === 'object' ? kept : {}) };

  function storage(part) {
    const values = new Map(Object.entries(kept[part] ?? {}));
    const save = () => {
      kept[part] = Object.fromEntries(values);
      window.name = JSON.stringify(kept);
    };
    return {
      get length() {
        return values.size;
      },
      key: index => [...values.keys()][index] ?? null,
      getItem: name => values.get(String(name)) ?? null,
      setItem: (name, value) => (values.set(String(name), String(value)), save()),
      removeItem: name => (values.delete(String(name)), save()),
      clear: () => (values.clear(), save())
    };
  }

  for (const [name, part] of [
    ['localStorage', 'local'],
    ['sessionStorage', 'session']
  ]) {
    Object.defineProperty(window, name, { value: storage(part), configurable: true });
  }
  Object.defineProperty(document, 'cookie', { get: () => '', set: () => {} });

  // Ray's pages colour all but scroll bars and the browser's own controls.
  const theme = new URLSearchParams(location.search).get('theme');
  document.documentElement.style.colorScheme = theme || 'light dark';

  // Other sites, such as Grafana, would run in here without their login and storage: not at all.
  document.addEventListener('securitypolicyviolation', event => {
    if (event.effectiveDirective !== 'frame-src') {
      return;
    }
    for (const frame of document.querySelectorAll('iframe[src]:not([srcdoc])')) {
      const link = document.createElement('a');
      link.textContent = 'Open this chart in a new tab';
      Object.assign(link, { target: '_blank', rel: 'noopener noreferrer' });
      link.href = /^https?:/.test(frame.src) ? frame.src : '#';
      frame.srcdoc = `<p style="font: 14px sans-serif">Pages of other sites are not embedded. ${link.outerHTML}</p>`;
    }
  });

  const report = () => parent.postMessage({ llmops: location.hash || '#' }, '*');
  window.addEventListener('hashchange', report);
  window.addEventListener('popstate', report);
  // A router that pushes states causes neither of the two events.
  for (const name of ['pushState', 'replaceState']) {
    const original = history[name];
    history[name] = function (...args) {
      const result = original.apply(this, args);
      report();
      return result;
    };
  }
  window.addEventListener('message', ({ source, data }) => {
    if (source === parent && typeof data?.llmops === 'string' && data.llmops !== location.hash) {
      location.hash = data.llmops;
    }
  });
  report();
})();
