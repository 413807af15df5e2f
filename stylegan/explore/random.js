// Normal numbers as NumPy's RandomState draws them: Marsaglia's polar method on the Mersenne Twister
// (Matsumoto and Nishimura 1998).

const WORDS = 624; // of the state of the twister

// The normal numbers of RandomState(seed), for a seed from 0 to 2**32 - 1.
export function ofSeed(seed) {
  const state = Uint32Array.of(seed, ...new Uint32Array(WORDS - 1));
  for (let i = 1; i < WORDS; i++) {
    state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  }
  return normals(state, WORDS);
}

// The normal numbers of RandomState(MT19937(SeedSequence([a, b]))), seeded as O'Neill's seed_seq.
export function ofSequence(a, b) {
  const hash = (start, factor) => {
    let constant = start;
    return (word) => {
      const mixed = word ^ constant;
      constant = Math.imul(constant, factor);
      return folded(Math.imul(mixed, constant));
    };
  };
  const folded = (word) => word ^ (word >>> 16);
  const enter = hash(0x43b0d7e5, 0x931e8875);
  const leave = hash(0x8b51f9dd, 0x58f38ded);
  const pool = [a, b, 0, 0].map(enter);
  for (const from of [0, 1, 2, 3]) {
    for (const to of [0, 1, 2, 3].filter((place) => place !== from)) {
      pool[to] = folded(Math.imul(0xca01f9dd, pool[to]) - Math.imul(0x4973f715, enter(pool[from])));
    }
  }
  const state = new Uint32Array(WORDS).map((_, i) => leave(pool[i % 4]));
  state[0] = 0x80000000; // so that not all words are 0
  return normals(state, WORDS - 1);
}

// Endless normal numbers, from a state of the twister of which `used` words are consumed.
function* normals(state, used) {
  const word = () => {
    if (used === WORDS) renew(state);
    used %= WORDS;
    let y = state[used++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return y ^ (y >>> 18);
  };
  const uniform = () => ((word() >>> 5) * 2 ** 26 + (word() >>> 6)) / 2 ** 53;
  for (;;) {
    const x = 2 * uniform() - 1;
    const y = 2 * uniform() - 1;
    const square = x * x + y * y;
    if (square >= 1 || square === 0) continue;
    const factor = Math.sqrt((-2 * Math.log(square)) / square);
    yield factor * y;
    yield factor * x;
  }
}

function renew(state) {
  for (let i = 0; i < WORDS; i++) {
    const y = (state[i] & 0x80000000) | (state[(i + 1) % WORDS] & 0x7fffffff);
    state[i] = state[(i + 397) % WORDS] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
  }
}

// The next `count` of these numbers, in float32.
export const next = (numbers, count) => new Float32Array(count).map(() => numbers.next().value);
