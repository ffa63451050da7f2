// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <verbena/transports/iwarp.hpp>

namespace verbena::cli {

verbs::context& runtime::iwarp()
{
    if (!iwarp_)
        iwarp_ = verbena::iwarp::make_context(*shard_);
    return *iwarp_;
}

} // namespace verbena::cli
