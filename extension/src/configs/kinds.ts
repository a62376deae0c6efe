import { ILLMOps } from '../tokens';
import { ConfigKind } from '../wire';

/**
 * Whether a glob such as `*.train.yaml` or `cluster_templates/*.yaml` fits the end of a path.
 */
export function matches(path: string, glob: string): boolean {
  const parts = path.split('/');
  const wanted = glob.split('/');
  const end = parts.slice(-wanted.length);
  return (
    end.length === wanted.length &&
    wanted.every((pattern, index) => fits(end[index], pattern))
  );
}

/**
 * What a command calls a kind: `Training Config`; before the server has answered too.
 */
export function titleOf(kind: ConfigKind | null | undefined): string {
  return (kind ?? FIRST[0]).title.replace(/(^| )[a-z]/g, first =>
    first.toUpperCase()
  );
}

/** YAML of another kind beside the cluster templates. */
const NO_CONFIG = /(^|\/)cluster_templates\/rbac\.ya?ml$/;

function fits(name: string, pattern: string): boolean {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, '\\$&');
  return new RegExp(`^${escaped.replace(/\*/g, '.*')}$`).test(name);
}

/** Known before the server has answered; it is asked for kinds added later. */
const FIRST: ConfigKind[] = [
  {
    name: 'train',
    title: 'Training config',
    globs: ['*.train.yaml', '*.train.yml'],
    new_file: 'new.train.yaml',
    is_run: true
  },
  {
    name: 'script',
    title: 'Script config',
    globs: ['*.script.yaml', '*.script.yml'],
    new_file: 'new.script.yaml',
    is_run: true
  },
  {
    name: 'cluster',
    title: 'Cluster template',
    globs: [
      '*.cluster.yaml',
      '*.cluster.yml',
      'cluster_templates/*.yaml',
      'cluster_templates/*.yml'
    ],
    new_file: 'new.cluster.yaml',
    is_run: false
  }
];

/**
 * The kinds of config files.
 */
export class Kinds {
  constructor(llmops: ILLMOps) {
    this.ready = llmops
      .request<ConfigKind[]>('configs/kinds')
      .then(kinds => {
        this._kinds = kinds;
      })
      .catch(() => undefined);
  }

  /** Resolved when the server has answered or failed to. */
  readonly ready: Promise<void>;

  /** The kind of a file by its path; null for any other file. */
  of(path: string | null | undefined): ConfigKind | null {
    const has = (kind: ConfigKind) =>
      kind.globs.some(glob => matches(path ?? '', glob));
    if (!path || NO_CONFIG.test(path)) {
      return null;
    }
    return this._kinds.find(has) ?? null;
  }

  named(name: string): ConfigKind | null {
    return this._kinds.find(kind => kind.name === name) ?? null;
  }

  /** All but training configs, which have commands of their own. */
  get others(): ConfigKind[] {
    return this._kinds.filter(kind => kind.name !== 'train');
  }

  private _kinds = FIRST;
}
