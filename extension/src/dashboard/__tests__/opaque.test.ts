import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';

// Tests run in the extension's folder.
const SCRIPT = readFileSync(
  resolve('../llmops_kernel/server/dashboard/static/opaque.js'),
  'utf8'
);

/** What the script that runs before Ray's own makes of a page's address. */
function schemeOf(search: string): string {
  history.replaceState(null, '', `/view/${search}#/jobs`);
  new Function(SCRIPT)();
  return document.documentElement.style.colorScheme;
}

it("gives the scroll bars of Ray's pages the theme of JupyterLab", () => {
  expect(schemeOf('?theme=dark')).toBe('dark');
  expect(schemeOf('?theme=light')).toBe('light');
  // Elsewhere Ray's page asks the browser.
  expect(schemeOf('')).toBe('light dark');
});
