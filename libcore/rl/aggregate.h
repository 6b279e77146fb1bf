// SPDX-License-Identifier: Apache-2.0
// From losses of tokens to one number: every way of averaging is a share that each token has in the sum. Source:
// rl_lora 4.3.
#pragma once
#include <string_view>
#include <vector>

#include "rl/ragged.h"

namespace sf::rl {

// T: tokens; G: sequences; n: a sequence's tokens; F: the factor. Shares: token-mean 1/T; token-sum 1;
// seq-mean-token-sum 1/G; seq-mean-token-sum-norm 1/(G F); seq-mean-token-mean 1/(G (n + 1e-8)).
enum class Aggregation { kTokenMean, kTokenSum, kSeqMeanTokenSum, kSeqMeanTokenSumNorm, kSeqMeanTokenMean };
Aggregation aggregation_from_name(std::string_view name);  // kConfig naming those there are

// Of the whole mini-batch, over all its micro-batches and all ranks: then the sum of their losses depends neither on
// how it is cut nor on who computes what.
struct Denominators {
  double tokens = 0;     // T
  double sequences = 0;  // G
  double factor = 1;     // F
};

// Tokens of the mask, and sequences that have one; F is the longest sequence. What one micro-batch alone would divide
// by.
Denominators local_denominators(const Ragged& rows, Mask mask);

// By token, 0 outside of the mask. kSoftware if the denominator that the mode wants is not positive: a mini-batch
// without a token is its caller's to skip.
std::vector<double> token_shares(const Ragged& rows, Mask mask, Aggregation mode, const Denominators& by);

// Sum of share times value over tokens with a share.
double weighted_sum(Numbers values, Numbers shares);
// Mean over the mask, of its tokens plus 1e-8 as in the reference.
double masked_mean(Numbers values, Mask mask);

}  // namespace sf::rl
