import jupyter from '@jupyter/eslint-plugin';
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

/** JupyterLab's rules for extensions, and TypeScript's; the layout is Prettier's. */
export default defineConfig(
  { ignores: ['src/wire.ts', 'src/**/__tests__'] },
  {
    files: ['src/**'],
    extends: [tseslint.configs.recommended],
    languageOptions: {
      parserOptions: {
        projectService: true,
        tsconfigRootDir: import.meta.dirname
      }
    }
  },
  { plugins: { jupyter } },
  jupyter.configs.recommended,
  {
    files: ['src/**'],
    rules: {
      // As in JupyterLab's template: command ids are a namespace.
      '@typescript-eslint/no-namespace': 'off',
      // The plugins start with the application, and all parts are one small bundle.
      'jupyter/prefer-lazy-imports': 'off',
      // A widget in the shell belongs to the shell; the rule sees only `tracker.add`.
      'jupyter/require-disposable-ownership': 'off'
    }
  },
  {
    // Words beside texts of the server, which are English; a notebook has no translations.
    files: ['src/ui/**', 'src/configs/kinds.ts', 'src/panel/**'],
    rules: { 'jupyter/no-untranslated-string': 'off' }
  }
);
