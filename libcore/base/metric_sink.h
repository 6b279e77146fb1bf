// SPDX-License-Identifier: Apache-2.0
// Where rooms report numbers without knowing who reads them. Nobody below `app` formats text for people.
#pragma once
#include <cstdint>
#include <string_view>

namespace sf {

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void scalar(int64_t step, std::string_view name, double value) = 0;
  virtual void flush(int64_t step) = 0;  // the step's record is complete
};

// Where resolved options are echoed by the code that applies them: "applied <key>=<value> to <what> by <room>".
class AppliedOptions {
 public:
  virtual ~AppliedOptions() = default;
  virtual void applied(std::string_view key, std::string_view value, std::string_view to_what, std::string_view by) = 0;
};

}  // namespace sf
