// SPDX-License-Identifier: Apache-2.0
// Checks of RPC-over-RDMA over a provider, beside those of verbs (verbena/testing/conformance.hpp).
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/testing/conformance/target.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace verbena::conform {

using testing::conformance::end;
using testing::conformance::fill;
using testing::conformance::need;
using testing::conformance::sum;

struct target : testing::conformance::target {
    target(verbs::context& c, buffer_pool& b, std::string to, std::uint64_t seed)
        : testing::conformance::target(c, std::move(to), seed), buffers(b)
    {
    }
    buffer_pool& buffers;
};

struct check {
    const char* name;
    task<void> (*run)(target& t); ///< throws failure
};
/// In the order in which they run.
std::span<const check> rpc_checks() noexcept;        ///< by our requester
std::span<const check> rpc_header_checks() noexcept; ///< by headers made one by one

} // namespace verbena::conform
