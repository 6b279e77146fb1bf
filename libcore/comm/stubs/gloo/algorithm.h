// SPDX-License-Identifier: Apache-2.0
// LibTorch's header asks for this one; nothing of it is named there.
#pragma once
