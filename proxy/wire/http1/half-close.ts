import type { Socket } from "node:net";
import type { Clock } from "../../../policy/kernel/clock.ts";

/** What can be asked of a running exchange whose client closed its sending side. */
export interface Probed {
  readonly answered: boolean;
  /** Sends the first half of something that means nothing to a client that still reads; false when there is no such thing. */
  probe(): boolean;
  /** Sends the second half. */
  probeAgain(): void;
  abort(): void;
}

/** First look, and the time between looks while the answer flows. */
const LOOK_MS = 250;
const LOOKS = 3;
/** Between the two halves of a probe: longer than a round trip. */
const HALF_MS = 400;

/**
 * A client that closed its sending side may be waiting for its answer, or may be gone: TCP tells the two apart only when
 * something is sent, and `node:net` hears of a refusal only at the send after that. As long as the answer flows it tells
 * by itself. While nothing is sent, a probe in two halves does. Where the protocol has no room for one (a quiet answer of
 * known length), a client that closed its side within the answer counts as gone: those that mean to wait close it with
 * their request.
 */
export function watchHalfClosed(
  socket: Socket,
  exchange: Probed,
  clock: Clock,
  isRunning: () => boolean,
): void {
  const wasAnswered = exchange.answered;
  look(LOOKS);

  function look(left: number): void {
    const written = socket.bytesWritten;
    clock.after(LOOK_MS, () => {
      if (!isRunning() || socket.destroyed) {
        return;
      }
      if (socket.bytesWritten !== written) {
        if (left > 1) {
          look(left - 1);
        }
      } else if (exchange.probe()) {
        clock.after(HALF_MS, () => {
          if (isRunning()) {
            exchange.probeAgain();
          }
        });
      } else if (wasAnswered) {
        exchange.abort();
      }
    });
  }
}
