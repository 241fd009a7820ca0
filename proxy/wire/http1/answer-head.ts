import { STATUS_CODES } from "node:http";
import type { ResponseHead } from "../../../policy/kernel/exchange.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";

/** CR, LF and what is no byte would end the status line early. */
const UNSENDABLE = /[\0\r\n]|[^\x00-\xff]/;

/**
 * An answer head as it goes on the wire, without its last empty line; `framing` are whole lines of ours.
 *
 * @throws TypeError when status, reason or a field cannot be sent without changing the message's structure.
 */
export function writeAnswerHead(head: ResponseHead, date: string, framing: string): string {
  const { status, fields } = head;
  const reason = head.reason === "" ? (STATUS_CODES[status] ?? "") : head.reason;
  if (!Number.isInteger(status) || status < 200 || status > 999 || UNSENDABLE.test(reason)) {
    throw new TypeError("the status line cannot be sent");
  }
  const lines = writeFields(fields);
  return `HTTP/1.1 ${status} ${reason}\r\n${lines}${hasDate(fields) ? "" : date}${framing}\r\n`;
}

/** An interim answer as it goes on the wire. */
export function writeInterimHead(head: ResponseHead): string {
  if (UNSENDABLE.test(head.reason)) {
    throw new TypeError("the status line cannot be sent");
  }
  return `HTTP/1.1 ${head.status} ${head.reason}\r\n${writeFields(head.fields)}\r\n`;
}

function hasDate(fields: readonly string[]): boolean {
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i]!;
    if (name.length === 4 && name.toLowerCase() === "date") {
      return true;
    }
  }
  return false;
}
