// SPDX-License-Identifier: Apache-2.0
#include "tool/host_places.h"

namespace sf::tool {

std::optional<HostPlace> place_in(const ckpt::Checkpoint& files, const std::string& name) {
  if (!files.contains(name)) return std::nullopt;
  ckpt::Checkpoint::Place place = files.place(name);
  if (place.info.dtype != Dtype::kF32 && place.info.dtype != Dtype::kBF16) return std::nullopt;
  if (place.info.begin % size_of(place.info.dtype) != 0) return std::nullopt;  // it cannot be read where it lies
  const auto& digests = files.manifest().digests;
  auto digest = digests.find(place.info.name);
  return HostPlace{place.file->path(), place.info.begin, place.info.dtype,
                   digest == digests.end() ? "" : digest->second};
}

PlaceOf places_in(const ckpt::Checkpoint& files) {
  return [&files](const std::string& parameter) { return place_in(files, parameter); };
}

PlaceOf places_of(const DraftFiles& draft) {
  return [&draft](const std::string& parameter) -> std::optional<HostPlace> {
    if (draft.files.contains(parameter)) return place_in(draft.files, parameter);
    auto taken = draft.link.taken.find(parameter);
    return taken == draft.link.taken.end() ? std::nullopt : place_in(draft.target, taken->second);
  };
}

std::map<std::string, HostPlace> place_host_tables(plan::ScheduleOptions& options, const PlaceOf& place_of) {
  std::map<std::string, HostPlace> places;
  for (const auto& [name, residency] : options.tables) {
    if (residency != plan::Residency::kHost) continue;
    std::optional<HostPlace> place = place_of(name);
    if (!place) continue;
    options.host_types[name] = place->type;
    places.emplace(name, *place);
  }
  return places;
}

}  // namespace sf::tool
