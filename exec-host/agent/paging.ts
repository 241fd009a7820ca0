import { AgentError } from "./errors.ts";

/** A list answer: a window of the items, and how many there are in all. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly meta: { readonly total: number; readonly page: number; readonly limit: number };
  /** True when a later page has items; beside the documented shape, so that iterating clients can stop. */
  readonly has_more: boolean;
}

/**
 * Cuts the window that `?page=` and `?limit=` name (section 1.2). No limit, or 0, is the whole list.
 *
 * @throws AgentError `bad_request` for anything but whole numbers in range.
 */
export function toPage<Item>(items: readonly Item[], query: URLSearchParams): Page<Item> {
  const page = wholeNumber(query, "page", 1, 1);
  const limit = wholeNumber(query, "limit", 0, 0);
  const total = items.length;
  if (limit === 0) {
    return { items, meta: { total, page: 1, limit: total }, has_more: false };
  }
  const start = (page - 1) * limit;
  return {
    items: items.slice(start, start + limit),
    meta: { total, page, limit },
    has_more: start + limit < total,
  };
}

function wholeNumber(
  query: URLSearchParams,
  name: string,
  fallback: number,
  least: number,
): number {
  const text = query.get(name);
  if (text === null) {
    return fallback;
  }
  const value = /^\d{1,9}$/.test(text) ? Number(text) : -1;
  if (value < least) {
    throw new AgentError("bad_request", `${name} must be a whole number, ${least} or more.`, {
      field: name,
    });
  }
  return value;
}
