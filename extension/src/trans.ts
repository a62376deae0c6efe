import {
  ITranslator,
  nullTranslator,
  TranslationBundle
} from '@jupyterlab/translation';

const DOMAIN = 'llmops';

/**
 * The texts of this extension in the language of the page.
 */
export let trans: TranslationBundle = nullTranslator.load(DOMAIN);

/**
 * Use Lab's translations. `connectionPlugin`, which all others need, does so before they begin.
 */
export function setTranslator(translator: ITranslator): void {
  trans = translator.load(DOMAIN);
}
