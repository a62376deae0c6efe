import { LabIcon } from '@jupyterlab/ui-components';

/** Something that is sent off; the triangle means to run a cell here. */
export const submitIcon = new LabIcon({
  name: 'llmops:submit',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" d="M3 20.500 21.500 12 3 3.500v6.600L15 12 3 13.900z"/></svg>'
});
