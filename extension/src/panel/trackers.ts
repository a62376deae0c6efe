/** Where the trackers of `report_to` have the run. */

import { PanelTracker } from '../wire';
import { h, onChange } from './dom';
import { ISection } from './state';

const IS_PAGE = /^https?:\/\//;

export function trackers(): ISection {
  const list = h('ul.outputs');
  const title = h('div.foldtitle', {}, 'Trackers');
  const element = h('div.fold', {}, title, list);
  const draw = onChange((items: PanelTracker[]) => {
    element.hidden = items.length === 0;
    const lines = items.map(({ name, url, path }) =>
      h('li', {}, h('span.what', {}, name), place(url, path))
    );
    list.replaceChildren(...lines);
  });
  return { element, update: state => draw(state.trackers ?? []) };
}

/** A link to a page of http or https only: another scheme could run code in this one. */
function place(url: string, path: string): HTMLElement {
  if (IS_PAGE.test(url)) {
    const attributes = {
      href: url,
      target: '_blank',
      rel: 'noreferrer noopener'
    };
    return h('a.path', attributes, url);
  }
  return h('code.path', { title: path }, path);
}
