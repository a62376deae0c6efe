import { readFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  plugins: [
    {
      name: 'svg-as-text',
      load(id) {
        if (id.endsWith('.svg')) {
          return `export default ${JSON.stringify(readFileSync(id, 'utf8'))}`;
        }
      }
    }
  ],
  test: {
    environment: 'jsdom',
    include: ['src/**/__tests__/**/*.test.{ts,tsx}'],
    setupFiles: ['src/__tests__/setup.ts'],
    // Their ES modules lie in packages that do not say so.
    server: {
      deps: {
        inline: [/@jupyterlab\//, /@jupyter\//, /@lumino\//, /lib0/, /y-protocols/, /yjs/]
      }
    }
  }
});
