/** ListRange: which part of a list a call asks for: OpenAI's `after`, `limit` and `order`. */
import { ApiError } from '../../shared/errors.ts';

export interface ListRange {
  /** Id of the last one of the page before. */
  after: string | undefined;
  limit: number;
  order: 'asc' | 'desc';
}

/** Throws `invalid_value` that names the parameter. */
export function readListRange(query: (name: string) => string | undefined, bounds: { most: number; usual: number }): ListRange {
  const limit = query('limit') ?? String(bounds.usual);
  if (!/^\d{1,6}$/.test(limit) || Number(limit) < 1 || Number(limit) > bounds.most) {
    throw new ApiError('invalid_value', `Invalid value for 'limit': it must be a whole number from 1 to ${bounds.most}.`, {
      param: 'limit',
    });
  }
  const order = query('order') ?? 'desc';
  if (order !== 'asc' && order !== 'desc') {
    throw new ApiError('invalid_value', "Invalid value for 'order': it must be 'asc' or 'desc'.", { param: 'order' });
  }
  const after = query('after') || undefined;
  if (after !== undefined && !/^[\w-]{1,128}$/.test(after)) {
    throw new ApiError('invalid_value', "Invalid value for 'after': it must be the id of one of the list.", { param: 'after' });
  }
  return { after, limit: Number(limit), order };
}

/** OpenAI's list object. */
export interface PageOut<T> {
  object: 'list';
  data: T[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** `found` has one more than was asked for, when there are more. */
export function pageOf<T extends { id: string }>(found: readonly T[], limit: number): PageOut<T> {
  const data = found.slice(0, limit);
  return { object: 'list', data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: found.length > limit };
}
