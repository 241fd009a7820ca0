import { AgentError } from "../errors.ts";
import type { Session, SessionRegistry } from "../seams.ts";

/**
 * The live session of an id.
 *
 * @param realm as selected by the request; null looks in every served realm.
 * @throws AgentError `not_found`, also for a session of another realm.
 */
export function liveSession(
  sessions: SessionRegistry,
  id: string,
  realm: string | null = null,
): Session {
  const session = sessions.get(id);
  if (session === undefined || (realm !== null && session.realm !== realm)) {
    throw new AgentError("not_found", "session not live");
  }
  return session;
}
