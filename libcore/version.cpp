// SPDX-License-Identifier: Apache-2.0
namespace sf {
// The one place that names the release; NEWS says what changed.
const char* version() {
  return "0.1.0";
}
}  // namespace sf
