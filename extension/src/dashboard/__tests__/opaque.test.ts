import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';

// Tests run in the extension's folder.
const SCRIPT = readFileSync(
  resolve('../llmops_kernel/server/dashboard/static/opaque.js'),
  'utf8'
);

/** What the script that runs before Ray's own makes of a page of that address. */
function schemeOf(search: string): string {
  const page = {
    window: { name: '', addEventListener: () => undefined },
    document: document.implementation.createHTMLDocument(),
    location: { search, hash: '#/jobs' },
    history: { pushState: () => undefined, replaceState: () => undefined },
    parent: { postMessage: () => undefined }
  };
  new Function(...Object.keys(page), SCRIPT)(...Object.values(page));
  return page.document.documentElement.style.colorScheme;
}

it("gives the scroll bars of Ray's pages the theme of JupyterLab", () => {
  expect(schemeOf('?theme=dark')).toBe('dark');
  expect(schemeOf('?theme=light')).toBe('light');
  // Elsewhere Ray's page asks the browser.
  expect(schemeOf('')).toBe('light dark');
});
