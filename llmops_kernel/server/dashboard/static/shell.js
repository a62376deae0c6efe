// Opens a view of the cluster's dashboard, shows it in a frame without an origin, and renews it.
// Of the frame it takes only two messages: that it runs, and which of its pages it shows.
(() => {
  const RENEW_MS = 30_000;
  const SILENT_MS = 15_000;
  const { cluster, xsrf } = document.body.dataset;
  const note = document.getElementById('note');
  const frame = document.getElementById('ray');
  // Relative, so that it holds below any prefix that a proxy puts before Jupyter's own.
  const views = new URL('../../dashboard-views', location.href.split(/[?#]/)[0]).href;
  let view = '';
  let alive = false;

  // JupyterLab's theme, in a tab of JupyterLab; elsewhere empty: Ray's page then asks the browser.
  const lab = outside();
  const theme = () => ({ true: 'light', false: 'dark' })[lab?.dataset.jpThemeLight] ?? '';

  function outside() {
    try {
      return window.parent === window ? null : window.parent.document.body;
    } catch {
      return null; // A page of another origin.
    }
  }

  function say(lines, address = '') {
    note.replaceChildren(
      ...lines.filter(Boolean).map(line => {
        const paragraph = document.createElement('p');
        paragraph.textContent = line;
        return paragraph;
      })
    );
    if (/^https?:\/\//.test(address)) {
      const link = document.createElement('a');
      Object.assign(link, { href: address, target: '_blank', rel: 'noopener noreferrer' });
      link.textContent = `Open the cluster's own dashboard at ${address}`;
      note.append(link);
    }
    note.hidden = note.childNodes.length === 0;
  }

  async function ask() {
    const answer = await fetch(views, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-XSRFToken': xsrf },
      body: JSON.stringify({ cluster, view })
    });
    return [answer.status, await answer.json().catch(() => ({}))];
  }

  function show() {
    alive = false;
    frame.hidden = false;
    frame.src = `${views}/${view}/${theme() && `?theme=${theme()}`}${location.hash}`;
    setTimeout(() => {
      if (!alive) {
        say([
          'The Ray Dashboard does not start in this browser.',
          'Its page runs without your login. A proxy in front of Jupyter that asks each request for a cookie of its own keeps its parts from loading.'
        ]);
      }
    }, SILENT_MS);
  }

  let shown = theme();
  document.body.dataset.theme = shown;
  function follow() {
    if (theme() !== shown) {
      shown = document.body.dataset.theme = theme();
      if (view) {
        show(); // Ray's page reads its theme when it starts.
      }
    }
  }

  async function renew() {
    let status, found;
    try {
      [status, found] = await ask();
    } catch {
      return view ? undefined : say(['The Jupyter server does not answer.']); // Asked again soon.
    }
    if (status === 200 && found.view !== view) {
      view = found.view;
      say([]);
      show();
    } else if (status !== 200 && !view) {
      const remedy = found.remedy ? `Try: ${found.remedy}` : '';
      say([found.message ?? `Jupyter answered ${status}.`, remedy], found.url);
    } else if (status === 403) {
      say(['Your login has ended. Log in to Jupyter and reload this page.']);
    }
  }

  window.addEventListener('message', ({ source, data }) => {
    if (source !== frame.contentWindow || typeof data?.llmops !== 'string') {
      return;
    }
    if (!alive) {
      alive = true;
      say([]);
    }
    if (data.llmops.startsWith('#') && data.llmops.length < 2000) {
      history.replaceState(null, '', data.llmops);
    }
  });
  window.addEventListener('hashchange', () =>
    frame.contentWindow.postMessage({ llmops: location.hash }, '*')
  );
  document.addEventListener('visibilitychange', () => document.hidden || renew());
  if (lab) {
    const watch = new MutationObserver(follow);
    watch.observe(lab, { attributes: true, attributeFilter: ['data-jp-theme-light'] });
    addEventListener('pagehide', () => watch.disconnect());
  }
  setInterval(renew, RENEW_MS);
  renew();
})();
