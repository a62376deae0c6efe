import * as React from 'react';

import { trans } from '../trans';

/**
 * A few lines of a text that may be long, and a button that shows all of it.
 */
export function Clamped(props: { text: string }): JSX.Element {
  const { text } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const [isCut, setCut] = React.useState(false);
  const [isOpen, setOpen] = React.useState(false);
  React.useEffect(() => {
    const element = box.current;
    if (!element || isOpen) {
      return;
    }
    const measure = () =>
      setCut(element.scrollHeight > element.clientHeight + 1);
    measure();
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    return () => resized.disconnect();
  }, [text, isOpen]);
  return (
    <>
      <div ref={box} className={isOpen ? '' : 'llmops-lab-clamped'}>
        {text}
      </div>
      {(isCut || isOpen) && (
        <button
          type="button"
          className="llmops-runs-link"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          {isOpen ? trans.__('Show less') : trans.__('Show all')}
        </button>
      )}
    </>
  );
}
