import { LabIcon } from '@jupyterlab/ui-components';

function icon(name: string, body: string): LabIcon {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">${body}</g></svg>`;
  return new LabIcon({ name: `llmops:${name}`, svgstr: svg });
}

/** A curve that goes down. */
export const runsIcon = icon(
  'runs',
  '<path d="M4 3h2v16h15v2H4z"/><path d="M8.2 5.3 10 4.4c2.6 5.6 5.6 8.7 10.6 9.600l-.4 2c-5.8-1.1-9.2-4.7-12-10.700z"/>'
);

/** Nodes around a head. */
export const clustersIcon = icon(
  'clusters',
  '<path d="M11 7.800h2v3.300l4.6 2.7-1 1.7-4.6-2.7-4.6 2.7-1-1.7 4.6-2.700z"/><circle cx="12" cy="5.5" r="3"/><circle cx="5" cy="16.5" r="3"/><circle cx="19" cy="16.5" r="3"/>'
);

export const starIcon = icon(
  'star',
  '<path d="m12 3.5 2.6 5.6 6.1.7-4.5 4.2 1.2 6-5.4-3-5.4 3 1.2-6L3.3 9.800l6.1-.7zm0 4.7-1.2 2.7-3 .3 2.2 2-.6 2.9 2.6-1.4 2.6 1.4-.6-2.9 2.2-2-3-.3z"/>'
);

export const starredIcon = icon(
  'starred',
  '<path d="m12 3.5 2.6 5.6 6.1.7-4.5 4.2 1.2 6-5.4-3-5.4 3 1.2-6L3.3 9.800l6.1-.7z"/>'
);

export const compareIcon = icon(
  'compare',
  '<path d="M4 3h2v16h15v2H4z"/><path d="m8 7 1.6-1.200L14 11l5-1.5.6 1.900L13.3 13.300z"/><path d="m8 12.5 1.6-1.2 4.3 4.6 6-.4.1 2-6.9.500z"/>'
);

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

/** Something that is sent off; the triangle means to run a cell here. */
export const submitIcon = icon(
  'submit',
  '<path d="M3 20.500 21.500 12 3 3.500v6.600L15 12 3 13.900z"/>'
);

/** Rows of a table, one of them marked. */
export const dataIcon = icon(
  'data',
  '<path d="M3 4h18v4H3z"/><path d="M3 10h7v2H3zm0 4h5v2H3zm0 4h9v2H3z"/><path d="M12 10h9v2h-9zm-2 4h11v2H10zm4 4h7v2h-7z" opacity=".45"/>'
);

export const planIcon = icon(
  'plan',
  '<path d="M3 4h2v16h16v2H3z"/><path d="M7 5h5v3H7zm0 5h12v3H7zm0 5h8v3H7z"/><path d="M12 5h8v3h-8z" opacity=".45"/>'
);
