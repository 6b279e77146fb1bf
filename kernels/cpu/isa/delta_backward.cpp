// SPDX-License-Identifier: Apache-2.0
// Gradients of the gated delta rule, from the last chunk to the first; of each chunk the state before it is known, the
// rest is computed again. One (batch, key head) has one owner: threads do not change bits.
#include "delta_tile.h"

namespace sf::kernels::SF_ISA {

namespace {

struct Room {
  Keys keys;
  Links links;
  float *state, *state_t, *dstate_t;      // of the value head at work
  float* dstate;                          // of all value heads of the group, behind the chunk
  float *v, *known, *seen, *fix, *fix_t;  // v less what is known, k S, q S, corrections
  float *g, *behind, *dfix, *scaled;      // of out; k dS; of the corrections, then of what they solve; scratch
  float *dmix, *dlink, *dq, *dk, *dsums;
};

Room carve(const Delta& op, Carver& c) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim);
  Room r;
  r.keys = carve_keys(op, c);
  r.links = carve_links(c);
  float** const square[] = {&r.state, &r.state_t, &r.dstate_t};
  for (float** each : square) *each = Carver::take(c, dk * dv);
  r.dstate = Carver::take(c, op.value_heads / op.key_heads * dk * dv);
  float** const values[] = {&r.v, &r.known, &r.seen, &r.fix, &r.fix_t, &r.g, &r.behind, &r.dfix, &r.scaled};
  for (float** each : values) *each = Carver::take(c, kChunk * dv);
  r.dq = Carver::take(c, kChunk * dk), r.dk = Carver::take(c, kChunk * dk);
  r.dmix = Carver::take(c, kChunk * kChunk), r.dlink = Carver::take(c, kChunk * kChunk);
  r.dsums = Carver::take(c, kChunk);
  return r;
}

SF_INLINE float dot(const float* a, const float* b, size_t width) {
  Lanes total = splat(0.0f);
  for (size_t i = 0; i < width; i += kLanes) total = fma(load(a + i), load(b + i), total);
  return sum(total);
}

// The chunk as the forward pass saw it: links, k S, q S, corrections and v - grown k S (in r.v).
void again(const Delta& op, size_t batch, size_t head, Chunk chunk, const Room& r) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim), n = chunk.count;
  make_links(op, batch, head, chunk, r.keys, r.links);
  product(n, dv, op.key_dim, {r.keys.k, dk, 1}, r.state, dv, r.known, dv, false);
  product(n, dv, op.key_dim, {r.keys.q, dk, 1}, r.state, dv, r.seen, dv, false);
  load_head(op, op.v, batch, head, op.value_dim, chunk, r.v);
  for (size_t t = 0; t < n; ++t) {
    const Lanes grown = splat(-r.links.grown[t]);
    for (size_t i = t * dv; i < (t + 1) * dv; i += kLanes) store(r.v + i, fma(grown, load(r.known + i), load(r.v + i)));
  }
  scale_rows(r.v, r.links.beta, n, dv, r.fix);
  for (size_t i = n * dv; i < chunk.padded * dv; i += kLanes) store(r.fix + i, splat(0.0f));
  solve(r.links.link, n, r.fix, dv);
}

// Gradients of the corrections (dfix), of mix and link, and from these of beta and of the sums of decay.
void through_links(const Delta& op, Chunk chunk, const Room& r, const float* dstate, float* dbeta) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim), n = chunk.count, padded = chunk.padded;
  product(n, dv, op.key_dim, {r.keys.k, dk, 1}, dstate, dv, r.behind, dv, false);
  scale_rows(r.behind, r.links.left, n, dv, r.dfix);
  product(n, dv, n, {r.links.mix, 1, kChunk}, r.g, dv, r.dfix, dv, true);
  solve_transposed(r.links.link, n, r.dfix, dv);
  transpose(r.fix, padded, dv, r.fix_t);
  product(n, padded, dv, {r.g, dv, 1}, r.fix_t, padded, r.dmix, kChunk, false);
  product(n, padded, dv, {r.dfix, dv, 1}, r.fix_t, padded, r.dlink, kChunk, false);
  for (size_t t = 0; t < padded; ++t) r.dsums[t] = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t row = i * kChunk;
    Lanes through = splat(0.0f);
    for (size_t j = 0; j < padded; j += kLanes) {
      // Where j > i (for link j >= i) decay, mix and link are zero.
      const Lanes d = load(r.links.decay + row + j), mix = load(r.dmix + row + j), link = load(r.dlink + row + j);
      const Lanes turned = fma(mix, load(r.links.mix + row + j), link * load(r.links.link + row + j));
      through = through + turned;
      store(r.dsums + j, load(r.dsums + j) - turned);
      store(r.dmix + row + j, mix * d);
    }
    // link = -beta k k^T D: its gradient by k k^T, and by beta as link / beta, which beta = 0 forbids to divide.
    Lanes pair = splat(0.0f);
    for (size_t j = 0; j < padded; j += kLanes) {
      const float edge = static_cast<float>(i) - static_cast<float>(j);  // columns below it count
      float places[kLanes];
      for (size_t l = 0; l < kLanes; ++l) places[l] = static_cast<float>(l);
      const Lanes d = where_below(load(places), splat(edge), load(r.links.decay + row + j), splat(0.0f));
      const Lanes own = load(r.dlink + row + j) * d;
      pair = fma(own, load(r.keys.kk + row + j), pair);
      store(r.dlink + row + j, own * splat(-r.links.beta[i]));
    }
    dbeta[i * op.value_heads] = dot(r.dfix + i * dv, r.v + i * dv, dv) - sum(pair);
    r.dsums[i] += sum(through);
  }
}

// Gradients of q^ and k^ of this value head, added; of the state before the chunk, in place of that behind it.
void through_keys(const Delta& op, Chunk chunk, const Room& r, float* dstate) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim), n = chunk.count;
  transpose(r.state, dk, dv, r.state_t);
  transpose(dstate, dk, dv, r.dstate_t);
  product(n, dk, n, {r.dmix, kChunk, 1}, r.keys.k, dk, r.dq, dk, true);
  product(n, dk, n, {r.dmix, 1, kChunk}, r.keys.q, dk, r.dk, dk, true);
  product(n, dk, n, {r.dlink, kChunk, 1}, r.keys.k, dk, r.dk, dk, true);
  product(n, dk, n, {r.dlink, 1, kChunk}, r.keys.k, dk, r.dk, dk, true);
  scale_rows(r.fix, r.links.left, n, dv, r.scaled);
  product(n, dk, op.value_dim, {r.scaled, dv, 1}, r.dstate_t, dk, r.dk, dk, true);
  float total = 0;
  for (size_t t = 0; t < n; ++t) {
    const float left = dot(r.scaled + t * dv, r.behind + t * dv, dv);
    r.dsums[t] -= left;
    total += left;
  }
  const float grown = r.links.grown[n - 1];
  total += grown * dot(r.state, dstate, dk * dv);
  for (size_t i = 0; i < dk * dv; i += kLanes) store(dstate + i, load(dstate + i) * splat(grown));
  // Of q S: grown g.
  scale_rows(r.g, r.links.grown, n, dv, r.scaled);
  product(n, dk, op.value_dim, {r.scaled, dv, 1}, r.state_t, dk, r.dq, dk, true);
  product(op.key_dim, dv, n, {r.keys.q, 1, dk}, r.scaled, dv, dstate, dv, true);
  for (size_t t = 0; t < n; ++t) r.dsums[t] += dot(r.scaled + t * dv, r.seen + t * dv, dv);
  // Of k S: -beta grown dfix.
  for (size_t t = 0; t < n; ++t) {
    const Lanes by = splat(-r.links.beta[t] * r.links.grown[t]);
    for (size_t i = t * dv; i < (t + 1) * dv; i += kLanes) store(r.scaled + i, load(r.dfix + i) * by);
    r.dsums[t] += dot(r.scaled + t * dv, r.known + t * dv, dv);
  }
  product(n, dk, op.value_dim, {r.scaled, dv, 1}, r.state_t, dk, r.dk, dk, true);
  product(op.key_dim, dv, n, {r.keys.k, 1, dk}, r.scaled, dv, dstate, dv, true);
  r.dsums[n - 1] += total;
}

template <typename T>
void give_rows(const float* rows, size_t width, size_t dim, Chunk chunk, T* to, size_t step) {
  for (size_t t = 0; t < chunk.count; ++t)
    spans(dim, [&](size_t i, size_t n) { give(to + t * step + i, load(rows + t * width + i), n); });
}

// x^ = norm x, norm = scale / sqrt(x.x + eps): dx = norm (d - x^ (x^ . d) / scale^2).
void denormalise(const float* unit, const float* norm, float scale, size_t count, size_t width, float* d) {
  for (size_t t = 0; t < count; ++t) {
    const Lanes along = splat(dot(unit + t * width, d + t * width, width) / (scale * scale)), by = splat(norm[t]);
    for (size_t i = t * width; i < (t + 1) * width; i += kLanes)
      store(d + i, (load(d + i) - load(unit + i) * along) * by);
  }
}

template <typename T>
void backward(const Delta& op, const DeltaGradient& a, const Room& r, size_t batch, size_t key_head) {
  const size_t dk = whole(op.key_dim), dv = whole(op.value_dim), group = op.value_heads / op.key_heads;
  const size_t chunks = (op.length + kChunk - 1) / kChunk, kept = op.key_dim * op.value_dim;
  for (size_t i = 0; i < group * dk * dv; i += kLanes) store(r.dstate + i, splat(0.0f));
  for (size_t c = chunks; c-- > 0;) {
    const Chunk chunk = chunk_at(op, c);
    const size_t token = batch * op.length + chunk.first, out_step = op.value_heads * op.value_dim;
    const size_t place = batch * a.batch_step + chunk.first * a.token_step;
    load_keys(op, batch, key_head, chunk, r.keys);
    for (size_t i = 0; i < chunk.count * dk; i += kLanes) store(r.dq + i, splat(0.0f)), store(r.dk + i, splat(0.0f));
    for (size_t g = 0; g < group; ++g) {
      const size_t head = key_head * group + g, at = token * op.value_heads + head;
      load_state(op, a.states + ((batch * chunks + c) * op.value_heads + head) * kept, r.state);
      again(op, batch, head, chunk, r);
      load_rows(static_cast<const T*>(a.g) + token * out_step + head * op.value_dim, out_step, chunk, op.value_dim,
                r.g);
      through_links(op, chunk, r, r.dstate + g * dk * dv, a.dbeta + at);
      through_keys(op, chunk, r, r.dstate + g * dk * dv);
      scale_rows(r.dfix, r.links.beta, chunk.count, dv, r.scaled);
      give_rows(r.scaled, dv, op.value_dim, chunk, static_cast<T*>(a.dv) + place + head * op.value_dim, a.token_step);
      float total = 0;
      for (size_t t = chunk.count; t-- > 0;) a.ddecay[at + t * op.value_heads] = total += r.dsums[t];
    }
    denormalise(r.keys.q, r.keys.q_norm, 1.0f / __builtin_sqrtf(static_cast<float>(op.key_dim)), chunk.count, dk, r.dq);
    denormalise(r.keys.k, r.keys.k_norm, 1.0f, chunk.count, dk, r.dk);
    give_rows(r.dq, dk, op.key_dim, chunk, static_cast<T*>(a.dq) + place + key_head * op.key_dim, a.token_step);
    give_rows(r.dk, dk, op.key_dim, chunk, static_cast<T*>(a.dk) + place + key_head * op.key_dim, a.token_step);
  }
}

}  // namespace

size_t delta_backward_scratch(const Delta& op) {
  Carver count;
  carve(op, count);
  return count.total;
}

void delta_backward(const Delta& op, const DeltaGradient& gradient, float* scratch, size_t begin, size_t end) {
  Carver carver{scratch};
  const Room room = carve(op, carver);
  for (size_t piece = begin; piece < end; ++piece) {
    if (op.type == Type::kF32)
      backward<float>(op, gradient, room, piece / op.key_heads, piece % op.key_heads);
    else
      backward<uint16_t>(op, gradient, room, piece / op.key_heads, piece % op.key_heads);
  }
}

}  // namespace sf::kernels::SF_ISA
