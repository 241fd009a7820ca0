import { AgentError } from "./errors.ts";
import { describeJob } from "./jobs.ts";
import type { Job, Jobs } from "./jobs.ts";
import { jsonAnswer } from "./router.ts";
import type { Router } from "./router.ts";

/** J1 to J3. */
export function registerJobRoutes(router: Router, jobs: Jobs): void {
  const require = (id: string | undefined): Job => {
    const job = jobs.get(id ?? "");
    if (job === undefined) {
      throw new AgentError("not_found");
    }
    return job;
  };
  router.add(
    {
      method: "get",
      path: "/jobs/{id}",
      operationId: "getJob",
      summary: "A job's record",
      row: "own",
      errors: ["not_found"],
    },
    (request) => jsonAnswer(describeJob(require(request.params["id"]))),
  );
  router.add(
    {
      method: "get",
      path: "/jobs/{id}/result",
      operationId: "getJobResult",
      summary: "A job's result, or how far it is",
      row: "own",
      errors: ["not_found"],
    },
    (request) => {
      const job = require(request.params["id"]);
      if (job.status === "pending" || job.status === "running") {
        return jsonAnswer({ status: job.status, session_id: job.sessionId });
      }
      return jsonAnswer({ status: job.status, result: job.result, error: job.error });
    },
  );
  router.add(
    {
      method: "delete",
      path: "/jobs/{id}",
      operationId: "deleteJob",
      summary: "Cancel a job, or forget a finished one",
      row: "own",
      errors: ["not_found", "job_not_cancellable"],
    },
    (request) => {
      const removed = jobs.remove(request.params["id"] ?? "");
      if (removed === null) {
        throw new AgentError("not_found");
      }
      return jsonAnswer(
        removed === "canceled" ? { status: "ok", canceled: true } : { status: "ok", deleted: true },
      );
    },
  );
}
