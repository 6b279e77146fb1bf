// SPDX-License-Identifier: Apache-2.0
// Imported features as states, and a look at whether they are what they should be.
#pragma once
#include <string>

#include "gen/target.h"
#include "tool/offline_features.h"

namespace sf::run {

// The states of a row that is kept, layer by layer.
gen::States imported_states(const tool::OfflineFeatures& features, const tool::CaptureWish& wish,
                            const text::ChatRow& row);

// What the states of the first `most` rows are nearest to, among all layers of a plain forward. kData naming the row
// and both layers if it is not the layer they should be, or nothing is near. A line for people.
std::string check_import(const tool::OfflineFeatures& features, gen::Target& target, const tool::CaptureWish& wish,
                         int64_t most);

}  // namespace sf::run
