// SPDX-License-Identifier: Apache-2.0
// The gated delta rule in chunks: what a chunk's tokens owe the state before it and each other, as products of matrices
// and one triangular system; and token by token.
#include "delta_tile.h"

namespace sf::kernels::SF_ISA {

namespace {

struct Room {
  Keys keys;
  Links links;
  float *fix, *seen, *weighed, *state;  // corrections, q S, keys times left, and the states of the key head's group
};

Room carve(const Delta& op, Carver& c) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim);
  Room room;
  room.keys = carve_keys(op, c);
  room.links = carve_links(c);
  room.fix = Carver::take(c, kChunk * dv), room.seen = Carver::take(c, kChunk * dv);
  room.weighed = Carver::take(c, kChunk * dk);
  room.state = Carver::take(c, op.value_heads / op.key_heads * dk * dv);
  return room;
}

template <typename T>
void write_rows(const Delta& op, const float* rows, size_t batch, size_t head, Chunk chunk, T* out) {
  for (size_t t = 0; t < chunk.count; ++t) {
    T* to = out + ((batch * op.length + chunk.first + t) * op.value_heads + head) * op.value_dim;
    spans(op.value_dim, [&](size_t i, size_t n) { give(to + i, load(rows + t * whole(op.value_dim) + i), n); });
  }
}

// state: before the chunk, then behind it.
void value_head(const Delta& op, size_t batch, size_t head, Chunk chunk, const Room& r, float* state, void* out) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim), n = chunk.count;
  make_links(op, batch, head, chunk, r.keys, r.links);
  product(n, dv, op.key_dim, {r.keys.k, dk, 1}, state, dv, r.seen, dv, false);
  load_head(op, op.v, batch, head, op.value_dim, chunk, r.fix);
  for (size_t t = 0; t < n; ++t) {
    const Lanes grown = splat(-r.links.grown[t]), beta = splat(r.links.beta[t]);
    for (size_t i = t * dv; i < (t + 1) * dv; i += kLanes)
      store(r.fix + i, beta * fma(grown, load(r.seen + i), load(r.fix + i)));
  }
  solve(r.links.link, n, r.fix, dv);
  product(n, dv, op.key_dim, {r.keys.q, dk, 1}, state, dv, r.seen, dv, false);
  scale_rows(r.seen, r.links.grown, n, dv, r.seen);
  product(n, dv, n, {r.links.mix, kChunk, 1}, r.fix, dv, r.seen, dv, true);
  if (op.type == Type::kF32)
    write_rows(op, r.seen, batch, head, chunk, static_cast<float*>(out));
  else
    write_rows(op, r.seen, batch, head, chunk, static_cast<uint16_t*>(out));
  scale_rows(r.keys.k, r.links.left, n, dk, r.weighed);
  const Lanes all = splat(r.links.grown[n - 1]);
  for (size_t i = 0; i < dk * dv; i += kLanes) store(state + i, load(state + i) * all);
  product(op.key_dim, dv, n, {r.weighed, 1, dk}, r.fix, dv, state, dv, true);
}

}  // namespace

size_t delta_scratch(const Delta& op) {
  Carver count;
  carve(op, count);
  return count.total;
}

void delta_chunks(const Delta& op, void* out, float* states, float* scratch, size_t begin, size_t end) {
  const size_t group = op.value_heads / op.key_heads, chunks = (op.length + kChunk - 1) / kChunk;
  const size_t kept = op.key_dim * op.value_dim, padded = whole(op.key_dim) * whole(op.value_dim);
  Carver carver{scratch};
  const Room room = carve(op, carver);
  for (size_t piece = begin; piece < end; ++piece) {
    const size_t batch = piece / op.key_heads, key_head = piece % op.key_heads;
    for (size_t i = 0; i < group * padded; i += kLanes) store(room.state + i, splat(0.0f));
    for (size_t c = 0; c < chunks; ++c) {
      const Chunk chunk = chunk_at(op, c);
      load_keys(op, batch, key_head, chunk, room.keys);
      for (size_t g = 0; g < group; ++g) {
        const size_t head = key_head * group + g;
        if (states)
          keep_state(op, room.state + g * padded, states + ((batch * chunks + c) * op.value_heads + head) * kept);
        value_head(op, batch, head, chunk, room, room.state + g * padded, out);
      }
    }
  }
}

namespace {

// One token of one value head. q, k: normed; kept: of the state.
template <typename T>
void step(const Delta& op, const float* q, const float* k, const T* v, float kept, float beta, float* state, T* out) {
  for (size_t j = 0; j < op.value_dim; j += kLanes) {
    const size_t n = op.value_dim - j < kLanes ? op.value_dim - j : kLanes;
    Lanes known = splat(0.0f), seen = splat(0.0f);
    for (size_t i = 0; i < op.key_dim; ++i) {
      float* row = state + i * op.value_dim + j;
      const Lanes s = take(row, n) * splat(kept);
      give(row, s, n);
      known = fma(splat(k[i]), s, known);
    }
    const Lanes fix = splat(beta) * (take(v + j, n) - known);
    for (size_t i = 0; i < op.key_dim; ++i) {
      float* row = state + i * op.value_dim + j;
      const Lanes s = fma(splat(k[i]), fix, take(row, n));
      give(row, s, n);
      seen = fma(splat(q[i]), s, seen);
    }
    give(out + j, seen, n);
  }
}

template <typename T>
void steps(const Delta& op, T* out, float* state, float* scratch, size_t piece) {
  const size_t batch = piece / op.value_heads, head = piece % op.value_heads, dk = whole(op.key_dim);
  const size_t key_head = head / (op.value_heads / op.key_heads);
  float *q = scratch, *k = scratch + dk;
  const Chunk one{0, 1, 1};
  float norm;
  for (size_t t = 0; t < op.length; ++t) {
    load_rows(row_of<T>(op, op.q, batch, t, key_head * op.key_dim), 0, one, op.key_dim, q);
    load_rows(row_of<T>(op, op.k, batch, t, key_head * op.key_dim), 0, one, op.key_dim, k);
    normalise(q, 1, dk, 1.0f / __builtin_sqrtf(static_cast<float>(op.key_dim)), &norm);
    normalise(k, 1, dk, 1.0f, &norm);
    const size_t at = (batch * op.length + t) * op.value_heads + head;
    float grown[kLanes];
    store(grown, exp(splat(op.decay[at])));
    step(op, q, k, row_of<T>(op, op.v, batch, t, head * op.value_dim), grown[0], op.beta[at],
         state + piece * op.key_dim * op.value_dim, out + at * op.value_dim);
  }
}

}  // namespace

void delta_steps(const Delta& op, void* out, float* state, float* scratch, size_t begin, size_t end) {
  for (size_t piece = begin; piece < end; ++piece) {
    if (op.type == Type::kF32)
      steps(op, static_cast<float*>(out), state, scratch, piece);
    else
      steps(op, static_cast<uint16_t*>(out), state, scratch, piece);
  }
}

}  // namespace sf::kernels::SF_ISA
