// SPDX-License-Identifier: Apache-2.0
// --from: a stream's handle on stdin, a handle file, or a directory of features; --tee keeps what was streamed.
#pragma once
#include <memory>

#include "app/command.h"
#include "base/error.h"
#include "comm/group.h"
#include "stream/source.h"

namespace sf::run {

// Every rank calls it. Rank 0 owns stdin and tells the others the handle. kUsage: stdin is a terminal; kProtocol: the
// contract is not the wanted one, naming the field.
std::unique_ptr<stream::Source> open_source(app::Invocation& invocation, comm::Group& group,
                                            const stream::Contract& wanted);

// Tells the producer of a stream that its samples are not those this run wants; of a directory nothing.
void refuse(const stream::Source& source, const Error& why);

// The producer of a stream was told to stop and waits for this trainer to publish and leave.
bool producer_stopping(const stream::Source& source);

// What became of every position that was asked of a stream, over all ranks; of a directory nothing. kSoftware if the
// counters do not add up. Every rank calls it, after finish().
void explain_stream(app::Invocation& invocation, comm::Group& group, const stream::Source& source);

// Ends --tee: once every rank has closed its part, rank 0 publishes the directory. Does nothing without --tee. A run
// that did not end well leaves DIR.partial, which the next one continues.
void publish_tee(app::Invocation& invocation, comm::Group& group, stream::Source& source, bool ended_well);

}  // namespace sf::run
