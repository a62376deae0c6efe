import { ReactWidget } from '@jupyterlab/ui-components';

/**
 * Content of a main area widget that scrolls by wheel and, with the focus, by keyboard.
 */
export function scrolled(view: JSX.Element): ReactWidget {
  const content = ReactWidget.create(view);
  content.addClass('llmops-mainarea');
  return content;
}
