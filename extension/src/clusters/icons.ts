import { LabIcon } from '@jupyterlab/ui-components';

function icon(name: string, body: string): LabIcon {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">${body}</g></svg>`;
  return new LabIcon({ name: `llmops:${name}`, svgstr: svg });
}

/** Two arrows that leave a corner each: larger or smaller. */
export const scaleIcon = icon(
  'scale',
  '<path d="M14 3h7v7h-2V6.400l-5.300 5.300-1.400-1.400L17.600 5H14z"/><path d="M10 21H3v-7h2v3.600l5.300-5.300 1.400 1.400L6.400 19H10z"/>'
);

/** A window with bars in it. */
export const dashboardIcon = icon(
  'dashboard',
  '<path d="M3 4h18v16H3zm2 2v12h14V6z"/><path d="M7 12h2v4H7zm4-4h2v8h-2zm4 2h2v6h-2z"/>'
);
