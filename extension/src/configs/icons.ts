import { LabIcon } from '@jupyterlab/ui-components';

/** Something that is sent off; the triangle means to run a cell here. */
export const submitIcon = new LabIcon({
  name: 'llmops:submit',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" d="M3 20.500 21.500 12 3 3.500v6.600L15 12 3 13.900z"/></svg>'
});

/** Rows of a table, one of them marked. */
export const dataIcon = new LabIcon({
  name: 'llmops:data',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161"><path d="M3 4h18v4H3z"/><path d="M3 10h7v2H3zm0 4h5v2H3zm0 4h9v2H3z"/><path d="M12 10h9v2h-9zm-2 4h11v2H10zm4 4h7v2h-7z" opacity=".45"/></g></svg>'
});
