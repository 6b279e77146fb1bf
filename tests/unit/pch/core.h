// SPDX-License-Identifier: Apache-2.0
// As libcore/pch/core.h, for a room's tests.
#pragma once
#include <gtest/gtest.h>

#include "../../../libcore/pch/core.h"
