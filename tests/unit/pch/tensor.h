// SPDX-License-Identifier: Apache-2.0
// As libcore/pch/tensor.h, for a room's tests.
#pragma once
#include <gtest/gtest.h>

#include "../../../libcore/pch/tensor.h"
