/** Alphabet of `match.path` (edge-proxy.md 6.1); anything else has no meaning here, whatever a shell would say. */
const GLOB = /^(?:\*|\/[A-Za-z0-9._\-/*]{0,256})$/;

/**
 * Compiles a path glob into one anchored RegExp: a final star fits any rest, every other star one or more
 * characters of one segment, all else stands for itself (edge-proxy.md 6.6).
 *
 * Matching is linear in the path. A glob library's output is not: with several stars in one segment its star
 * expressions try each other's ends (`/*a*a*a*a…` against a long run of `a`), and hostile clients choose the path.
 * Here each star takes the earliest place where the text behind it stands and never gives it back (a look-ahead
 * with a back reference is an atomic group); for stars between fixed texts the earliest place is always as good as
 * any later one. Only the last star of a segment, whose text must end the segment, searches from behind.
 *
 * Throws for a glob outside the alphabet.
 */
export function compilePathGlob(glob: string): RegExp {
  if (!GLOB.test(glob)) {
    throw new Error("not a path glob");
  }
  if (glob === "*") {
    return /^/;
  }
  const open = glob.endsWith("*");
  const segments = (open ? glob.slice(0, -1) : glob).split("/");
  let atoms = 0;
  const source = segments.map((segment, index) => {
    const [head = "", ...pieces] = segment.split("*").map(escapeDots);
    const anchored = !(open && index === segments.length - 1);
    return pieces.reduce((text, piece, at) => {
      if (anchored && at === pieces.length - 1) {
        return `${text}[^/]+${piece}`;
      }
      return `${text}(?=([^/]+?${piece}))\\${++atoms}`;
    }, head);
  });
  // Without the end anchor the rest is free, which is what a final star means.
  return new RegExp(`^${source.join("\\/")}${open ? "" : "$"}`);
}

/** The dot is the only character of the alphabet that a RegExp gives a meaning (`-` has one in classes only). */
function escapeDots(text: string): string {
  return text.replaceAll(".", "\\.");
}
