import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");
const FOLDERS = ["policy", "dispatcher", "proxy", "exec-host", "client"];

interface Rule {
  /** Files the rule speaks of. */
  readonly from: RegExp;
  /** What they may import, as paths from the root; anything else of ours is refused. */
  readonly allow: readonly RegExp[];
  readonly reason: string;
}

// The first rule whose `from` fits decides. A new arrow is a design change: edit this table in the same commit.
const RULES: readonly Rule[] = [
  {
    from: /^policy\/kernel\//,
    allow: [/^policy\/kernel\//],
    reason: "the kernel knows no policy; it is what all four folders share",
  },
  {
    from: /^policy\/documents\//,
    allow: [/^policy\/(documents|kernel)\//],
    reason: "documents are plain data and decoders",
  },
  {
    from: /^policy\/compile\//,
    allow: [/^policy\/(compile|documents|kernel)\//],
    reason: "compiling reads documents and does no IO",
  },
  {
    from: /^policy\/store\//,
    allow: [/^policy\/(store|compile|documents|kernel)\//],
    reason: "the store keeps compiled documents and knows no API",
  },
  {
    from: /^policy\/api\//,
    allow: [/^policy\//, /^dispatcher\/select\.ts$/],
    reason: "policy is the lowest folder",
  },
  {
    from: /^dispatcher\//,
    allow: [/^dispatcher\//, /^policy\//],
    reason:
      "the dispatcher hands requests over and does not know the edge or the exec host's inside",
  },
  {
    from: /^exec-host\/worker\//,
    allow: [
      /^exec-host\/worker\//,
      /^exec-host\/scripts\//,
      /^exec-host\/(protocol|execution-records)\.ts$/,
      /^dispatcher\/(envelope|frames|call-frame|call-table|order)\.ts$/,
      /^policy\/kernel\/(fields|target|exchange|clock|ids|errors|http1\/.*)\.ts$/,
    ],
    reason:
      "the worker runs tenants' scripts: the less of ours it loads, the faster it starts and the less it holds",
  },
  {
    from: /^exec-host\/(?!(?:main|run)\.ts$)/,
    allow: [
      /^exec-host\//,
      /^policy\/(kernel|documents)\//,
      /^dispatcher\/(envelope|frame-client)\.ts$/,
    ],
    reason: "the exec host shares the hand-over contract with the dispatcher and nothing else",
  },
  { from: /^client\//, allow: [/^client\//], reason: "the client is published and stands alone" },
  {
    // Composition roots may know every part.
    from: /^(proxy\/(main|serve|traffic|edge-process|agent-access|host-commands|client-commands|demo|cli\/.*)|exec-host\/(main|run))\.ts$/,
    allow: [/./],
    reason: "",
  },
  {
    from: /^proxy\//,
    allow: [/^proxy\//, /^dispatcher\//, /^policy\//],
    reason: "the edge reaches scripts through the dispatcher only",
  },
];

/** Words that may stand in a few files only: one door each. */
const DOORS: readonly { word: RegExp; allowed: RegExp; reason: string }[] = [
  {
    word: /\b(Date\.now\(|new Date\(\)|performance\.now\()/,
    allowed: /^(policy\/kernel\/(clock|log)\.ts|exec-host\/worker\/|client\/)/,
    reason: "time comes from an injected clock",
  },
  {
    word: /(?<![.\w])(setTimeout|setInterval)\(/,
    allowed: /^(policy\/kernel\/clock\.ts|exec-host\/worker\/|client\/)/,
    reason: "timers come from an injected clock",
  },
  {
    word: /from "(node:)?dns(\/promises)?"/,
    allowed: /^proxy\/dns-lookup\.ts$/,
    reason: "strangers' names reach the DNS through one bounded door",
  },
  {
    word: /\bnew URL\(/,
    allowed: /^(exec-host|client)\//,
    reason: "a URL object rebuilds path bytes; targets are read by kernel/target.ts",
  },
  {
    word: /\b(writeFile|writeFileSync|createWriteStream)\(/,
    allowed: /^(policy\/(kernel\/atomic-file|store\/file-lock)\.ts$|exec-host\/tools\/)/,
    reason: "files are written whole, by kernel/atomic-file.ts",
  },
  {
    word: /\b(Math\.random|randomBytes|randomUUID|randomInt|getRandomValues)\(/,
    allowed: /^policy\/kernel\/ids\.ts$/,
    reason: "randomness comes from kernel/ids.ts",
  },
  {
    word: /\bprocess\.env\b/,
    allowed:
      /(^|\/)(main|config|child|demo|cli\/[a-z-]+|start)\.ts$|^exec-host\/(worker|agent|tools|pool)\//,
    reason: "the environment is read in composition roots only",
  },
];

function sources(): string[] {
  return FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: ROOT })).filter(
    (file) => !file.endsWith(".d.ts"),
  );
}

function importsOf(file: string, text: string): string[] {
  const found = [...text.matchAll(/(?:from|import)\s*\(?\s*"(\.{1,2}\/[^"]+)"/g)].map(
    (m) => m[1] as string,
  );
  return found.map((path) => relative(ROOT, resolve(dirname(join(ROOT, file)), path)));
}

test("imports follow the table of ARCHITECTURE.md", ({ expect }) => {
  const wrong: string[] = [];
  for (const file of sources()) {
    const text = readFileSync(join(ROOT, file), "utf8");
    const rule = RULES.find((candidate) => candidate.from.test(file));
    for (const target of importsOf(file, text)) {
      if (/(^|\/)main\.ts$/.test(target) || /^(bench|test)\//.test(target)) {
        wrong.push(`${file} imports ${target}: nobody imports a main.ts, bench or test`);
      } else if (!rule?.allow.some((pattern) => pattern.test(target))) {
        wrong.push(`${file} imports ${target}: ${rule?.reason ?? "no rule for this folder"}`);
      }
    }
  }
  expect(wrong).toEqual([]);
});

test("what may happen in a few files only happens there", ({ expect }) => {
  const wrong: string[] = [];
  for (const file of sources()) {
    const code = readFileSync(join(ROOT, file), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
    for (const door of DOORS) {
      const hit = door.word.exec(code);
      if (hit && !door.allowed.test(file)) {
        wrong.push(`${file} uses ${hit[0]}: ${door.reason}`);
      }
    }
  }
  expect(wrong).toEqual([]);
});

/** Files that ARCHITECTURE.md and the folders' own pages name in backquotes. */
test("pages about the code name files that exist", ({ expect }) => {
  const pages = globSync("{ARCHITECTURE,*/**/README,*/README}.md", {
    cwd: ROOT,
    exclude: (path) => path.includes("node_modules"),
  });
  const wrong: string[] = [];
  const files = sources();
  for (const page of pages) {
    const text = readFileSync(join(ROOT, page), "utf8");
    for (const [, path = ""] of text.matchAll(/`((?:\.\.\/)?[\w./-]+\.(?:ts|md|json))`/g)) {
      const near = [join(ROOT, dirname(page), path), join(ROOT, path), join(ROOT, "policy", path)];
      const below = files.some(
        (file) => file.startsWith(`${dirname(page)}/`) && file.endsWith(`/${path}`),
      );
      if (!below && !near.some((file) => existsSync(file))) {
        wrong.push(`${page} names ${path}`);
      }
    }
  }
  expect(wrong).toEqual([]);
});

test("no file exports a default or an enum", ({ expect }) => {
  const wrong = sources().filter((file) =>
    /^export default |^\s*(export )?(const )?enum /m.test(readFileSync(join(ROOT, file), "utf8")),
  );
  expect(wrong).toEqual([]);
});
