// What Lumino and JupyterLab need of a browser and jsdom lacks.

class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

Object.assign(globalThis, {
  DragEvent: class extends Event {},
  ResizeObserver: Observer,
  IntersectionObserver: Observer,
  requestIdleCallback: (callback: () => void) => setTimeout(callback, 0),
  cancelIdleCallback: (handle: number) => clearTimeout(handle)
});
window.matchMedia = query =>
  ({
    matches: false,
    media: query,
    addEventListener: () => {},
    removeEventListener: () => {},
    addListener: () => {},
    removeListener: () => {}
  }) as unknown as MediaQueryList;
