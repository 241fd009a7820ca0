/** The low bits of a call's number are its place in the table, the others tell its users apart. */
const PLACE_BITS = 20;
const PLACES = 2 ** PLACE_BITS;
const MAX_ROUND = 2 ** (32 - PLACE_BITS) - 1;

/** Gives numbers to calls: small places, used again, told apart by the round they are used in. */
export class CallNumbers {
  readonly #free: number[] = [];
  #places = 0;
  #round = 0;

  /** @throws RangeError when all places are taken. */
  next(): number {
    const place = this.#free.pop() ?? this.#places++;
    if (place >= PLACES) {
      throw new RangeError("too many calls at a time");
    }
    this.#round = this.#round === MAX_ROUND ? 1 : this.#round + 1;
    return this.#round * PLACES + place;
  }

  release(number: number): void {
    this.#free.push(number % PLACES);
  }
}

/**
 * Running calls by number. Not a Map: one is rebuilt as entries come and go, each dead table keeps its successor and its
 * entries, and so finished calls outlive every quick collection (docs/performance.md). Here a place that is given up
 * holds nothing.
 */
export class CallTable<T> {
  readonly #entries: (T | null)[] = [];
  readonly #numbers: number[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** False when its place is taken. */
  put(number: number, entry: T): boolean {
    const place = number % PLACES;
    while (this.#entries.length <= place) {
      this.#entries.push(null);
      this.#numbers.push(0);
    }
    if (this.#entries[place] !== null) {
      return false;
    }
    this.#entries[place] = entry;
    this.#numbers[place] = number;
    this.#size++;
    return true;
  }

  get(number: number): T | null {
    const place = number % PLACES;
    return this.#numbers[place] === number ? this.#entries[place]! : null;
  }

  /** Gives the place up; false when the entry has gone already. */
  remove(number: number): boolean {
    const place = number % PLACES;
    if (this.get(number) === null) {
      return false;
    }
    this.#entries[place] = null;
    this.#numbers[place] = 0;
    this.#size--;
    return true;
  }

  /** Those that are there now. */
  all(): T[] {
    return this.#entries.filter((entry) => entry !== null);
  }
}
